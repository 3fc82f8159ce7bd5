"""What modules are called with: samples of the data must stay, what the weights make may differ."""

from flatout.analysis.samples import inputs_check
from flatout.analysis.traces import Interval


def steps(*rows):
    """Return one interval in which `Net` is called with a batch of two samples, given by 16 digits each."""
    return (Interval(step=0, calls=(("Net", 0, 0, 1, 2, "".join(row * 16 for row in rows), ""),)),)


def test_other_samples_are_told():
    assert inputs_check(steps("a", "b"), steps("a", "b")).passed
    assert not inputs_check(steps("a", "b"), steps("a", "c")).passed


def test_a_module_whose_inputs_move_with_the_weights_may_have_other_ones():
    assert inputs_check(steps("a", "b"), steps("a", "c"), steps("a", "x")).passed
    assert not inputs_check(steps("a", "b"), steps("a", "c"), steps("a", "b")).passed


def test_their_number_counts_all_the_same():
    assert not inputs_check(steps("a", "b"), steps("a"), steps("a", "x")).passed
