"""Scripts as the tests of edits take them, and the way to write fixes into them."""

from pathlib import Path
from textwrap import dedent

from flatout.edits.reading.project import read_project
from flatout.edits.recipe_edits import write_recipe_in
from flatout.schema.trial import Selection

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=2)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
"""


def project_of(folder: Path, **files):
    """Write `train.py` and the other modules given, and read them as a project."""
    for name, text in files.items():
        code = text if isinstance(text, bytes) else dedent(text).encode()
        (folder / f"{name}.py").write_bytes(code)
    return read_project(folder / "train.py", folder, folder)


def written(folder: Path, fixes, *, recorded=(), step_s=0.0, **files):
    """Write fixes (name: settings) into `train.py` and the other modules given; return their texts and the outcomes."""
    project = project_of(folder, **files)
    selections = [Selection(name, settings) for name, settings in fixes.items()]
    patched, outcomes = write_recipe_in(project, selections, recorded, step_s)
    return {source.shown.removesuffix(".py"): source.code for source in patched.sources}, outcomes


def one(folder: Path, fix: str, text, **settings):
    """Write one fix into one script; return its text and the outcome."""
    files, (outcome,) = written(folder, {fix: settings}, train=text)
    return files["train"].decode(), outcome
