"""Ceilings: the batch is held in turns, and no finding promises more than that gave."""

from pathlib import Path

import pytest

from flatout.engine.diagnose import Limits, diagnose
from flatout.engine.target import parse_target
from flatout.report.look import Look
from flatout.report.text import text
from flatout.schema.codec import read_run
from tests.e2e.support import training

WAITING = """
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.ones(8), torch.ones(1)

Data = Slow
"""


@pytest.fixture
def diagnosed(flatout, monkeypatch):
    """Return a function that diagnoses a script with its ceilings."""
    monkeypatch.chdir(flatout.folder)

    def run(script, **options):
        flatout.write(script)
        limits = Limits(budget_s=240, headroom=True, **options)
        target = parse_target(("train.py",))
        return diagnose(target, limits=limits, out=flatout.folder / "run", watch=lambda progress: None, echo=None)

    return run


def test_what_the_input_costs_is_measured_by_holding_the_batch(diagnosed):
    report = diagnosed(training(before=WAITING, step_s=0.008))
    (ceiling,) = report.headroom
    assert ceiling.ceiling == "one batch held"
    assert 1.3 < ceiling.speedup < 3.0  # it waits for about half of its time
    assert ceiling.low <= ceiling.speedup <= ceiling.high
    assert ceiling.num_pairs >= 4
    promised = [each.max_speedup for each in report.findings if each.code.startswith("IN")]
    assert promised and max(promised) <= ceiling.speedup
    assert "one batch held" in text(report, Look(width=80)).plain
    assert read_run(Path(report.folder)).ceilings == report.headroom


@pytest.mark.parametrize(("options", "step_s"), [({}, 0.02), ({"steps": 20}, 0.003)])
def test_where_there_is_nothing_to_wait_for_or_no_time_is_given_no_batch_is_held(diagnosed, options, step_s):
    before = WAITING if options else ""
    report = diagnosed(training(before=before, step_s=step_s), **options)
    assert report.headroom == ()
    assert not (Path(report.folder) / "headroom").exists()
