"""Which step begins another training, by what the optimizers of each step hold."""

import pytest

from flatout.probe.core.stages import TrainingStages

TEACHER, STUDENT, HEAD = (60, 11_000_000), (20, 90_000), (2, 512)


def begun(*steps: tuple[int, set[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Return what was told of a training of such steps, so many of each: (at step, first step)."""
    stages = TrainingStages()
    held = [each for count, each in steps for _ in range(count)]
    told = [(number, stages.step(number, each)) for number, each in enumerate(held, start=1)]
    return [(number, first) for number, first in told if first]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([(40, {TEACHER})], []),
        ([(40, {TEACHER}), (30, {STUDENT})], [(52, 41)]),
        ([(40, {TEACHER}), (11, {STUDENT})], []),
        ([(20, {HEAD}), (30, {HEAD, TEACHER})], []),  # one that goes on beside another
        ([(20, {HEAD}), (30, {TEACHER}), (30, {STUDENT})], [(32, 21), (62, 51)]),
        ([(80, {TEACHER}), (80, {STUDENT}), (80, {TEACHER}), (80, {STUDENT})], [(92, 81), (161, 1)]),
        ([(4, {TEACHER}), (1, {TEACHER, STUDENT}), (4, {TEACHER}), (40, {STUDENT, TEACHER})], []),
        ([(19, {TEACHER}), (1, {TEACHER, STUDENT}), (30, {STUDENT})], [(32, 21)]),  # one step sees both
        ([(5, {TEACHER}), (1, {TEACHER, STUDENT})] * 3 + [(40, {STUDENT})], []),
        ([(5, {TEACHER}), (1, {STUDENT})] * 20, []),  # every sixth step is another network's
        ([(40, {TEACHER}), (1, {STUDENT}), (30, set())], [(52, 41)]),  # steps like the one before
    ],
)
def test_a_training_begins_where_those_before_step_no_more(steps, told):
    assert begun(*steps) == told


def test_many_trainings_are_one_in_the_end():
    each = [(20, {(number, number)}) for number in range(10)]
    assert [first for _, first in begun(*each)] == [21, 41, 61]
