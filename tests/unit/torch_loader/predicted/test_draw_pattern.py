"""What is predicted by: arithmetic alone."""

import pytest

from flatout.torch_loader.predicted.draw_pattern import DrawPattern


def noted(counts, size=4):
    pattern = DrawPattern()
    pattern.stepped((2,), size)
    found = [pattern.drawn((count % 624,), size, lambda count=count: (count,)) for count in counts]
    return pattern, found


def test_two_batches_alike_are_enough_to_predict_all():
    pattern, found = noted([700, 700])
    assert found == [False, True]
    assert pattern.is_fixed
    assert pattern.words_between(4) == (702,)
    assert pattern.words_between(2) == (351,)  # in proportion


def test_one_batch_says_nothing_yet():
    assert not noted([700])[0].is_fixed


def test_batches_that_differ_are_made_one_after_the_other():
    pattern, _ = noted(range(100, 140))
    assert not pattern.is_fixed
    assert pattern.words_of_step(4) == (2,)


def test_a_few_that_differ_do_not_matter():
    pattern, found = noted([700] * 8 + [701] + [700] * 8)
    assert pattern.is_fixed
    assert found.count(False) == 2  # the first and the odd one


def test_another_number_is_counted_once_it_was_seen_twice():
    pattern, _ = noted([700] * 3 + [900] * 16)
    assert pattern.batch == (900,)
    assert pattern.is_fixed


def test_what_cannot_be_counted_is_never_fixed():
    pattern = DrawPattern()
    pattern.stepped((0,), 4)
    for _ in range(5):
        assert not pattern.drawn((None,), 4, lambda: pytest.fail("is not counted"))
    assert not pattern.is_fixed


def test_the_smaller_batch_at_the_end_is_no_surprise():
    pattern, _ = noted([700] * 4)
    assert pattern.drawn((3,), 2, lambda: pytest.fail("is not counted"))
    assert pattern.is_fixed


def test_nothing_is_predicted_after_two_steps_that_drew_other_numbers_until_two_are_alike():
    pattern, _ = noted([700, 700])
    pattern.stepped((9,), 4)
    assert pattern.words_of_step(4) == (2,)  # one alone may be an exception
    pattern.stepped((5,), 4)
    assert pattern.words_of_step(4) is None
    assert pattern.words_between(4) is None
    pattern.stepped((5,), 4)
    assert pattern.words_of_step(4) == (5,)
