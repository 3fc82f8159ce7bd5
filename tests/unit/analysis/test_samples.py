"""What modules are called with: the data's samples must stay, what the weights make may differ."""

from flatout.analysis.samples import inputs_check
from flatout.analysis.traces import Interval


def steps(*rows):
    """Return one interval in which `Net` is called with a batch of two samples, given by 16 digits each."""
    return (Interval(step=0, calls=(("Net", 0, 0, 1, 2, "".join(row * 16 for row in rows), ""),)),)


def test_other_samples_are_told():
    assert inputs_check(steps("a", "b"), steps("a", "b")).passed
    assert not inputs_check(steps("a", "b"), steps("a", "c")).passed


def test_a_sample_that_moves_with_the_weights_may_have_other_values_and_the_others_may_not():
    nudged = steps("a", "x")
    assert inputs_check(steps("a", "b"), steps("a", "c"), nudged).passed
    assert not inputs_check(steps("a", "b"), steps("d", "c"), nudged).passed


def test_their_number_counts_all_the_same():
    assert not inputs_check(steps("a", "b"), steps("a"), steps("a", "x")).passed
