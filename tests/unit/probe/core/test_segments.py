"""Stretches of the training thread, and the validation that a loop does by hand in the middle of a step."""

from flatout.probe.core.segments import AloneForwards, Segment


def ended(alone, *numbers, acting=False, plain=False):
    return [alone.end(number, acting, plain) for number in numbers]


def test_a_stretch_counts_what_happens_in_it():
    segment = Segment(source=3)
    assert segment.marks == (3, False, False, False, 0, 0, 0)
    segment.forward_done(True)
    segment.forward_done(False)
    segment.forward_done(False, acting=True)
    segment.forward_done(False)
    segment.backwards, segment.batch = 1, True
    assert segment.marks == (3, True, True, False, 1, 3, 1)
    assert segment.forwards == 4


def test_many_more_passes_than_usual_are_a_validation():
    alone = AloneForwards()
    assert ended(alone, 1, 1, 1) == [False] * 3
    assert ended(alone, 6) == [True]  # 2 * 1 + 3 is the most of a step
    assert ended(alone, 5, 1) == [False, False]
    assert not alone.unusual(5)


def test_until_three_steps_are_known_nothing_is_unusual():
    alone = AloneForwards()
    ended(alone, 1, 1)
    assert not alone.unusual(1000)


def test_steps_without_a_usual_number_have_no_unusual_one():
    alone = AloneForwards()
    ended(alone, 1, 2, 3, 4, 5, 6)
    assert not alone.unusual(1000)


def test_a_policy_that_acts_is_no_validation():
    alone = AloneForwards()
    ended(alone, 1, 1, 1)
    assert ended(alone, 50, acting=True) == [False]
    assert list(alone.recent)[-1] == 50


def test_what_comes_every_few_steps_and_with_gradients_belongs_to_the_training():
    alone = AloneForwards()
    ended(alone, 1, 1, 1)
    found = [ended(alone, 20, 1, 1, 1)[0] for _ in range(5)]
    assert found == [True, True, True, False, False]


def test_what_comes_without_gradients_stays_a_validation():
    alone = AloneForwards()
    ended(alone, 1, 1, 1)
    assert [ended(alone, 20, 1, 1, 1, plain=True)[0] for _ in range(5)] == [True] * 5


def test_the_step_under_way_is_told_too():
    alone = AloneForwards()
    ended(alone, 1, 1, 1)
    assert not alone.validating
    alone.now = 6
    assert alone.validating
    alone.end(6, False, False)
    assert alone.now == 0
