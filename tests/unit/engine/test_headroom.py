"""Which ceilings are measured, on a scripted machine."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import run

from flatout.analysis.breakdown import account
from flatout.engine import headroom
from flatout.engine.target import Target
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER, LoaderFacts
from flatout.schema.trial import Pair

LOADER = LoaderFacts(is_training=True, num_batches=100)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return a function that measures the headroom of a run whose steps take `candidate_ms` with the batch held."""
    asked = []

    def measure(loaders=(LOADER,), pairs=8, candidate_ms=5.0, max_s=60.0, **shares):
        class Bench:
            def __init__(self, target, folder, watch, pace, **named):
                asked.append({"pace": pace, **named})

            def arms(self, base, arms, measured, **named):
                asked[-1]["place"] = arms[0][0].settings["place"]
                measured[0].pairs = [Pair(10.0, candidate_ms)] * pairs

        monkeypatch.setattr(headroom, "Bench", Bench)
        asked.clear()
        found = replace(run(**shares), loaders=loaders)
        target = Target("train.py", ("python", "train.py"))
        kept = headroom.measure_headroom(target, tmp_path, found, account(found), max_s=max_s, watch=lambda steps: None)
        return kept, asked

    return measure


def test_the_input_is_held_where_it_takes_time(measured):
    (ceiling,), asked = measured(input=50, forward=50)
    assert (ceiling.ceiling, ceiling.median_ms, ceiling.num_pairs) == (HELD_INPUT, 5.0, 8)
    assert ceiling.speedup == pytest.approx(2.0)
    assert ceiling.low <= ceiling.speedup <= ceiling.high
    assert [each["place"] for each in asked] == ["host"]


def test_copies_are_held_on_the_device_where_they_take_time(measured):
    ceilings, asked = measured(input=20, transfer=20, forward=60)
    assert [each.ceiling for each in ceilings] == [HELD_INPUT, HELD_TRANSFER]
    assert [each["place"] for each in asked] == ["host", "device"]


@pytest.mark.parametrize(
    "options",
    [
        {"input": 2, "forward": 98},
        {"input": 50, "forward": 50, "loaders": ()},
        {"input": 50, "forward": 50, "loaders": (replace(LOADER, is_training=False),)},
        {"input": 50, "forward": 50, "loaders": (replace(LOADER, num_batches=0),)},
        {"input": 50, "forward": 50, "max_s": 0.5},
    ],
)
def test_nothing_is_started_where_nothing_could_be_told(measured, options):
    assert measured(**options) == ((), [])


def test_too_few_pairs_are_no_ceiling(measured):
    assert measured(input=50, forward=50, pairs=3)[0] == ()


def test_batches_that_wait_ready_are_left_out_after_each_switch(measured):
    waiting = replace(LOADER, num_workers=3, prefetch_factor=4)
    _, asked = measured(input=50, forward=50, loaders=(waiting,))
    assert asked[0]["pace"].skip == 14
