"""`torch.autograd.grad` counts as the backward pass where a script has no other."""

from types import SimpleNamespace

import pytest

from flatout.probe.core.seams import Hits
from flatout.probe.model.functional_backward import instead


@pytest.mark.parametrize(
    ("optimizer_steps", "backwards", "counts"), [(0, 0, True), (1, 0, False), (0, 1, False), (2, 3, False)]
)
def test_it_is_a_backward_pass_only_without_optimizer_and_backward(optimizer_steps, backwards, counts):
    seen, hits = [], Hits()
    hits.count = backwards

    def make(original, own_hits):
        def backward(*args, **kwargs):
            seen.append(args)
            return original(*args, **kwargs)

        return backward

    tracker = SimpleNamespace(optimizers=SimpleNamespace(number=optimizer_steps))
    grad = instead(make, tracker, lambda: hits)(lambda outputs, *args, **named: (outputs, args, named), Hits())
    assert grad("loss", "weights", create_graph=True) == ("loss", ("weights",), {"create_graph": True})
    assert bool(seen) is counts


def test_it_is_asked_anew_at_each_call():
    seen, hits = [], Hits()
    tracker = SimpleNamespace(optimizers=SimpleNamespace(number=0))
    grad = instead(lambda original, _: lambda *args: seen.append(args), tracker, lambda: hits)(print, Hits())
    grad("first")
    hits.count = 1
    assert seen == [("first",)]
