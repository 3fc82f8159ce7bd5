"""What steps are expected to draw: what they drew last, with exceptions passed over."""

from flatout.torch_loader.streamed.step_words import StepWords


def test_nothing_is_expected_before_a_step_was_seen():
    assert StepWords().expected(3) == (0, 0, 0)


def test_one_exception_changes_nothing_and_two_alike_do():
    steps = StepWords()
    for words in [(2, 0), (2, 0), (7, 0)]:
        steps.note(words)
    assert steps.expected(2) == (2, 0)
    steps.note((7, 0))
    assert steps.expected(2) == (7, 0)


def test_what_nobody_can_count_is_taken_for_nothing():
    steps = StepWords()
    steps.note((None, 3))
    assert steps.expected(2) == (0, 3)
    steps.note((4, 3))
    assert steps.expected(2) == (4, 3)


def test_other_streams_are_begun_anew():
    steps = StepWords()
    steps.note((1,))
    steps.note((1, 5))
    assert steps.expected(2) == (1, 5)
    assert steps.expected(3) == (0, 0, 0)
