"""Ceilings: the input is held in turns at one place after the other, and no finding promises more than that gave."""

from pathlib import Path

import pytest

from flatout.engine import diagnose as engine
from flatout.engine.diagnose import Limits, diagnose
from flatout.engine.process.target import parse_target
from flatout.report.layout import Look
from flatout.report.text import text
from flatout.schema.codec import read_run
from flatout.schema.facts import HELD_INPUT, HELD_RAW, HELD_SAMPLES, LOADER_ALONE
from tests.e2e.support import training

WAITING = """
def shifted(x):
    time.sleep(0.0005)
    return x + 1

class Slow(torch.utils.data.Dataset):
    def __init__(self):
        self.transform = shifted

    def __len__(self):
        return 640

    def __getitem__(self, index):
        time.sleep(0.0005)
        return self.transform(torch.ones(8)), torch.ones(1)

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


def test_what_the_input_costs_is_measured_by_holding_it(diagnosed):
    report = diagnosed(training(before=WAITING, step_s=0.008))
    found = {each.ceiling: each for each in report.headroom}
    assert set(found) == {HELD_RAW, HELD_SAMPLES, HELD_INPUT, LOADER_ALONE}
    assert found[HELD_RAW].high > 1.0 and found[HELD_RAW].low < found[HELD_SAMPLES].high  # others compute beside it
    assert found[HELD_INPUT].speedup > 1.3  # it waits for about half of its time
    for ceiling in report.headroom:
        assert ceiling.low <= ceiling.speedup <= ceiling.high
        assert ceiling.num_pairs >= 4
    promised = [each.max_speedup for each in report.findings if each.code.startswith("IN")]
    assert promised and max(promised) <= found[HELD_INPUT].speedup
    shown = text(report, Look(width=80)).plain
    assert all(said in shown for said in ("raw samples replayed", "% reading", "% transforms", "The loader alone"))
    assert read_run(Path(report.folder)).ceilings == report.headroom


@pytest.mark.full
def test_samples_that_a_worker_makes_are_held_there(diagnosed):
    report = diagnosed(training(before=WAITING, step_s=0.003, workers=1))
    found = {each.ceiling: each for each in report.headroom}
    assert set(found) == {HELD_RAW, HELD_SAMPLES, HELD_INPUT, LOADER_ALONE}
    assert found[HELD_RAW].high > 1.0 and found[HELD_RAW].low < found[HELD_SAMPLES].high  # others compute beside it
    assert found[HELD_SAMPLES].low < 1.1 * found[HELD_INPUT].high


STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(640):
            time.sleep(0.001)
            yield torch.ones(8), torch.ones(1)

Data = Stream
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.full
def test_a_batch_of_a_stream_is_held_whose_length_nobody_knows(diagnosed, workers):
    report = diagnosed(training(before=STREAM, step_s=0.003, workers=workers).replace("shuffle=True, ", ""))
    found = {each.ceiling: each for each in report.headroom}
    assert set(found) == {HELD_INPUT, LOADER_ALONE}
    assert found[HELD_INPUT].speedup > 1.3


@pytest.mark.parametrize(("options", "step_s"), [({}, 0.06), ({"steps": 20}, 0.003)])
@pytest.mark.full
def test_where_there_is_nothing_to_wait_for_or_no_time_is_given_nothing_is_held(diagnosed, options, step_s):
    before = WAITING if options else ""
    report = diagnosed(training(before=before, step_s=step_s), **options)
    assert report.headroom == ()
    assert not (Path(report.folder) / "headroom").exists()


@pytest.mark.full
def test_what_was_measured_before_is_kept_when_holding_the_input_fails(diagnosed, monkeypatch):
    def fail(*_, **__):
        raise ValueError("something odd")

    monkeypatch.setattr(engine, "measure_headroom", fail)
    report = diagnosed(training(before=WAITING, step_s=0.003))
    assert report.headroom == ()
    assert any(each.code.startswith("IN") for each in report.findings)
    assert "the ceilings were not measured: ValueError: something odd" in report.run.notes
