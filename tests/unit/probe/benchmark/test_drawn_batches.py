"""Batches drawn from a loader, on a clock that the tests turn."""

import pytest
import torch

from flatout.probe.benchmark import drawn_batches
from flatout.probe.benchmark.drawn_batches import DrawnBatches, Pacing, draw


class Clock:
    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(drawn_batches, "time", made)
    return made


class Timed:
    """A loader whose batches take the seconds that are given."""

    def __init__(self, clock, waits, size=4):
        self.clock, self.waits, self.size, self.passes = clock, waits, size, 0

    def __iter__(self):
        self.passes += 1
        for seconds in self.waits:
            self.clock.now += seconds
            yield torch.zeros(self.size, 2)


def test_the_first_batch_of_a_pass_is_told_apart_from_the_speed(clock):
    drawn = draw(Timed(clock, [5.0, *[0.5] * 80]), Pacing(batches=81, until_s=1e9), workers=0)
    assert drawn.count == 81
    assert drawn.first_batch_s().median == 5.0
    speed = drawn.samples_s()
    assert (speed.median, speed.low, speed.high, speed.n) == (8.0, 8.0, 8.0, 8)
    assert drawn.mb_s().median == pytest.approx(8.0 * 2 * 4 / 1e6)


def test_workers_that_keep_step_are_counted_by_whole_rounds(clock):
    waits = [3.0, 0.0, 0.0, 0.0] * 20  # four at once, every three seconds
    drawn = draw(Timed(clock, waits), Pacing(batches=80, until_s=1e9), workers=4)
    speed = drawn.samples_s()
    assert (speed.low, speed.high) == (pytest.approx(16 / 3), pytest.approx(16 / 3))
    assert drawn.pauses().count == 0


def test_short_passes_are_timed_whole_with_their_start(clock):
    loader = Timed(clock, [1.0, 0.0, 0.5])
    drawn = draw(loader, Pacing(batches=9, until_s=1e9), workers=2)
    assert loader.passes == 3
    assert drawn.samples_s().median == 12 / 1.5
    assert drawn.samples_s().n == 3


def test_a_wait_five_times_the_usual_one_is_a_pause(clock):
    drawn = draw(Timed(clock, [0.1] * 50 + [2.0] + [0.1] * 50), Pacing(batches=200, until_s=6.0), workers=0)
    found = drawn.pauses()
    assert (found.count, found.longest_s) == (1, pytest.approx(2.0))
    assert found.share == pytest.approx(2.0 / (found.n * 0.1 + 1.9), rel=0.02)


def test_a_slow_loader_gets_more_time_until_it_has_given_the_least(clock):
    slow = Timed(clock, [2.0] * 50)
    assert draw(slow, Pacing(batches=50, until_s=1.0, least=3, latest_s=100.0), workers=0).count == 3
    clock.now = 0.0
    assert draw(slow, Pacing(batches=50, until_s=1.0, least=30, latest_s=10.0), workers=0).count == 5


def test_an_empty_loader_ends():
    assert draw([], Pacing(batches=5, until_s=1e9), workers=0).count == 0
    assert DrawnBatches(0).samples_s() is None


def test_the_first_dimension_is_taken_for_samples_only_where_it_may_be():
    drawn = DrawnBatches(0, known_size=4)
    assert drawn.size(torch.zeros(3, 2)) == 3  # the last batch
    assert drawn.size(torch.zeros(90)) == 4  # tokens of four samples, one after the other
    assert DrawnBatches(0).size(torch.zeros(90)) == 90
