"""Scripts as the tests of edits take them, and the way to write fixes into them."""

import ast
from pathlib import Path
from textwrap import dedent

from tests.unit.report.specimens import finding

from flatout.edits.finding_cures import EDITS
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.project import read_project
from flatout.edits.recipe_edits import write_recipe_in
from flatout.edits.rewrite import Unplaced
from flatout.schema.finding import Argument
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


def edited(folder: Path, name: str, text: str, *given: str, **arguments) -> tuple[str, str]:
    """Make one edit of a finding at the line marked `# <<`; return the new text, and why it was not made.

    `arguments`: what was measured of the call. One of the two is "".
    """
    code = dedent(text)
    lines = code.split("\n")
    line = next(number for number, each in enumerate(lines, 1) if "# <<" in each)
    project = project_of(folder, train=code.replace("  # <<", ""))
    source = project.script
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]
    found = [node for node in found if node.lineno <= line <= node.end_lineno]
    statement = max(found, key=lambda node: (node.lineno, -node.end_lineno))
    about = finding(arguments=tuple(Argument(name, value) for name, value in arguments.items()))
    try:
        done = EDITS[name].write(EditPlace(project, source, statement, about), *given)
    except Unplaced:
        return "", "unplaced"
    after = done.project.script.code.decode()
    assert bool(done.changed) == (after != source.code.decode())
    if done.there:
        return "", "there"
    ast.parse(after)
    return (after, "") if done.changed else ("", " ".join(done.left))


def same_results(before: str, after: str, *names: str, exact: bool = True) -> None:
    """Run two scripts from one seed and compare what is called `names` in them, to the bit or nearly."""
    import torch

    results = []
    for text in (before, after):
        torch.manual_seed(0)
        space: dict = {}
        exec(compile(text, "train.py", "exec"), space)
        results.append([space[name] for name in names])
    for one, other in zip(*results, strict=True):
        for mine, yours in zip(_tensors(one), _tensors(other), strict=True):
            assert mine.dtype == yours.dtype and mine.shape == yours.shape
            if exact:
                assert torch.equal(mine.nan_to_num(7.5), yours.nan_to_num(7.5))
            else:
                torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-6)


def _tensors(value):
    import torch

    if isinstance(value, torch.nn.Module):
        return [one.detach() for one in (*value.parameters(), *value.buffers())]
    return value if isinstance(value, list | tuple) else [value.detach()]
