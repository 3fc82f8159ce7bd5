"""Whole scripts that copy models, walk graphs again and save under umasks come out as plain under every fix there is.

To the last bit under those that promise it, and where a fix found nothing to act on; near in what they print and save
under others. Files have the same modes.
"""

import math
import re
from pathlib import Path

import pytest
import torch
from tests.unit.fixes.saving import tree
from tests.unit.fixes.starting import outcomes

from flatout.fixes.core.catalog import fixes
from flatout.schema.trial import COMPILED_PYTHON, EDITED_SOURCE, Equivalence

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "scripts"
SETTINGS = {
    "core-split": {"workers": 1, "threads": 1},
    "cpu-threads": {"threads": 1},
    "device-prefetch": {"kind": "cpu"},
    "device-resident-input": {"kind": "cpu"},
    "kept-calls": {"functions": "kept_models.py:build, late_surprises.py:Curves.__getitem__"},
    "kept-outputs": {"modules": "Sequential, Linear, Forecast"},
    "larger-batch": {"factor": 2, "lr_factor": 1.5},
    "loader-workers": {"workers": 1},
}
ACT = {
    "bf16-autocast",
    "cached-input",
    "compiled-input",
    "compiled-module",
    "denormals",
    "device-resident-input",
    "fused-optimizer",
    "gc-control",
    "larger-batch",
    "one-pass-optimizer",
}
ACT_BESIDES = {
    "kept_models": {"async-checkpoint"},
    "late_surprises": {"anomaly-off", "device-prefetch", "persistent-workers", "worker-threads"},
    "modes_of_files": {"async-checkpoint", "channels-last", "core-split", "cpu-threads"},
}
NEAR = {Equivalence.ROUNDING: 1e-3, Equivalence.PRECISION: 0.2}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|\bnan\b")


def settings(name, script):
    """Return the settings to try; `larger-batch` names the line that makes the loader."""
    chosen = SETTINGS.get(name, {})
    if name != "larger-batch":
        return chosen
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "DataLoader(" in text)
    return {**chosen, "loader": f"{script.name}:{line}"}


def near(one, other, share):
    return math.isclose(one, other, rel_tol=share, abs_tol=share)


def values(saved):
    """Yield every number in what a file holds."""
    if isinstance(saved, torch.nn.Module):
        saved = saved.state_dict()
    if isinstance(saved, torch.Tensor):
        yield from saved.double().flatten().tolist()
    elif isinstance(saved, dict):
        for each in saved.values():
            yield from values(each)
    elif isinstance(saved, list | tuple):
        for each in saved:
            yield from values(each)
    elif isinstance(saved, int | float):
        yield float(saved)


def loaded(folder):
    return {path.name: list(values(torch.load(path, weights_only=False))) for path in sorted(folder.rglob("*.pt"))}


def modes(found):
    return {name: facts[:3] for name, facts in found.items()}


def differs(kind, ours, plain):
    """Say in what a script came out otherwise than its class of fix allows; nothing where it did not."""
    if (ours.code, ours.failure) != (0, ""):
        return f"it ended with {ours.code} {ours.failure}: {ours.err[-500:]}"
    files = [
        {name: facts for name, facts in tree(each.folder).items() if not name.startswith(".flatout")}
        for each in (ours, plain)
    ]
    if modes(files[0]) != modes(files[1]):
        return f"modes {modes(files[0])}, not {modes(files[1])}"
    if kind is Equivalence.BITWISE:
        return "" if ours.out == plain.out and files[0] == files[1] else f"{ours.out}\nnot\n{plain.out}"
    printed = [list(map(float, NUMBER.findall(each.out))) for each in (ours, plain)]
    if kind is Equivalence.SEMANTIC:
        return "" if all(map(math.isfinite, printed[0])) else ours.out
    if NUMBER.sub("#", ours.out) != NUMBER.sub("#", plain.out):
        return f"{ours.out}\nnot\n{plain.out}"
    if not all(near(one, other, NEAR[kind]) for one, other in zip(*printed, strict=True)):
        return f"{ours.out}\nnot near\n{plain.out}"
    held = [loaded(each.folder) for each in (ours, plain)]
    same = all(
        near(one, other, NEAR[kind])
        for name in held[1]
        for one, other in zip(held[0][name], held[1][name], strict=True)
    )
    return "" if same else "what is saved is not near"


@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
@pytest.mark.few(1)
def test_a_script_comes_out_as_plain_under_every_fix(name, tmp_path):
    served = (COMPILED_PYTHON, EDITED_SOURCE)  # they need text that is served from the start of a process
    script, tried = SCRIPTS / f"{name}.py", [fix for fix in fixes() if fix.name not in served]
    selections = [(fix.name, settings(fix.name, script)) for fix in tried]
    plain, *under = outcomes(tmp_path, script, selections)
    assert plain.code == 0, plain.err
    kinds = [fix.equivalence if ours.hits else Equivalence.BITWISE for fix, ours in zip(tried, under, strict=True)]
    found = {fix.name: differs(*each, plain) for fix, *each in zip(tried, kinds, under, strict=True)}
    acted = {fix.name for fix, ours in zip(tried, under, strict=True) if ours.hits}
    assert {fix: why for fix, why in found.items() if why} == {}
    assert ACT | ACT_BESIDES[name] <= acted
