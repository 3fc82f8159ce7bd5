"""The verifier on real executions of a small script: right fixes pass, wrong ones are named, leftovers are removed."""

import os
import sys
from pathlib import Path

import pytest

from flatout.analysis.epochs import ShortEpochs
from flatout.engine.process.target import parse_target
from flatout.engine.trial.verify import Verifier
from flatout.fixes.core import catalog
from flatout.schema.trial import Equivalence, Selection

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(90, 6), torch.randn(90, 1))
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
check = DataLoader(data, batch_size=45)
for epoch in range(EPOCHS):
    model.train()
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in check))
"""

FIXES = """
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


def fix(name, around=None, dotted=""):
    def patch(site):
        def make(original):
            def call(*args, **kwargs):
                site.hit(dotted)
                return around(original, *args, **kwargs)
            return call
        if around is not None:
            site.wrap(dotted, make)
    return Fix(name=name, equivalence=Equivalence.BITWISE, phases=(Phase.FORWARD,), patch=patch)


def halves(original, module, x):
    import torch
    return torch.cat([original(module, x[:7]), original(module, x[7:])]) if len(x) > 8 else original(module, x)


LINEAR, ADAM = "torch.nn.modules.linear:Linear.forward", "torch.optim.adam:Adam.step"
FIXES = (
    fix("passes-on", lambda original, module, x: original(module, x), LINEAR),
    fix("does-nothing"),
    fix("sums-in-halves", halves, LINEAR),
    fix("off-by-a-percent", lambda original, module, x: original(module, x) * 1.01, LINEAR),
    fix("no-number", lambda original, module, x: original(module, x) * float("nan"), LINEAR),
    fix("breaks", lambda original, module, x: 1 / 0, LINEAR),
)
"""


@pytest.fixture
def make_verifier(workdir, monkeypatch):
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(workdir))
    monkeypatch.setitem(os.environ, catalog.EXTRA_VARIABLE, "fixes_of_my_own")
    monkeypatch.syspath_prepend(str(workdir))
    Path("fixes_of_my_own.py").write_text(FIXES)
    catalog.fixes.cache_clear()

    def make(epochs=30, short=ShortEpochs()):  # noqa: B008  it is frozen
        Path("train.py").write_text(SCRIPT.replace("EPOCHS", str(epochs)))
        Path("run").mkdir()
        return Verifier(parse_target(("train.py",)), Path("run").absolute(), epochs=short)

    yield make
    catalog.fixes.cache_clear()
    sys.modules.pop("fixes_of_my_own", None)


@pytest.mark.slow
@pytest.mark.full
def test_fixes_are_held_to_what_they_promise(make_verifier):
    verifier = make_verifier()

    def check(name, claimed):
        return verifier.check((Selection(name),), claimed)

    right = check("passes-on", Equivalence.BITWISE)
    assert right.equal is True, right.reason
    assert right.deterministic
    assert right.num_steps >= 64
    assert all(check.passed for check in right.checks)
    assert verifier.fixes[0]["hits"]

    idle = check("does-nothing", Equivalence.BITWISE)
    assert idle.equal is None
    assert "did nothing" in idle.reason

    rounding = check("sums-in-halves", Equivalence.ROUNDING)
    assert rounding.equal is True, rounding.reason
    assert {"loss of step 0", "gradients of step 12", "trajectory"} <= {check.name for check in rounding.checks}

    wrong = check("off-by-a-percent", Equivalence.ROUNDING)
    assert wrong.equal is False
    assert "the loss of step 0" in wrong.reason

    broken = check("breaks", Equivalence.BITWISE)
    assert broken.equal is None
    assert "division by zero" in broken.reason

    assert list(Path("run").rglob("captures/*.pt"))
    verifier.close()
    assert not list(Path("run").rglob("captures/*.pt"))


@pytest.mark.slow
@pytest.mark.full
def test_a_script_shorter_than_the_window_is_compared_to_its_end(make_verifier):
    verifier = make_verifier(epochs=2)
    equality = verifier.check((Selection("passes-on"),), Equivalence.BITWISE)
    assert equality.equal is True, equality.reason
    assert equality.num_steps == 12


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "steps"), [(40, 64), (2, 12)], ids=["many epochs", "the script ends too early"])
def test_of_epochs_that_end_early_none_is_called_a_whole_one(make_verifier, epochs, steps):
    verifier = make_verifier(epochs, ShortEpochs(2))
    equality = verifier.check((Selection("passes-on"),), Equivalence.BITWISE)
    assert equality.equal is True, equality.reason
    assert equality.num_steps == steps
    (told,) = [check.detail for check in equality.checks if check.name == "whole epoch"]
    assert told.startswith("a whole epoch" if steps == 12 else "no whole epoch")


def test_classes_that_no_single_run_can_tell_are_not_run(make_verifier):
    equality = make_verifier().check((), Equivalence.STATISTICAL)
    assert equality.equal is None
    assert not list(Path("run").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "equal", "reason", "trained"),
    [
        ("off-by-a-percent", None, "another training", True),
        ("no-number", False, "not a number", True),
        ("breaks", None, "division by zero", False),
    ],
)
@pytest.mark.few(1)
def test_of_another_training_only_the_losses_are_looked_at(make_verifier, name, equal, reason, trained):
    equality = make_verifier(epochs=2).check((Selection(name),), Equivalence.SEMANTIC)
    assert equality.equal is equal
    assert reason in equality.reason
    assert bool(equality.num_steps) is trained


WATCHED = """
import torch
from torch import nn

model = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    loss = model(torch.randn(16, 6)).square().mean()
    if SEES_US:
        loss = 2 * loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sees", [True, False])
@pytest.mark.full
def test_a_training_that_watching_changes_is_not_held_equal_to_itself(make_verifier, sees):
    verifier = make_verifier()
    Path("train.py").write_text(WATCHED.replace("SEES_US", '"_compiled_call_impl" in vars(type(model))' * sees or "0"))
    equality = verifier.check((Selection("passes-on"),), Equivalence.BITWISE)
    assert equality.equal is not sees, equality.reason
    assert ("does not watch" in equality.reason) is sees
    assert len(list(Path("run").rglob("verify-*-bare"))) == 1
