"""Which calls of the model are known to repeat another in vain."""

import pytest
import torch
from torch import nn

from flatout.probe.model.repeated_forward import RepeatWatch


class Loop:
    """A training by hand whose model is called through the watch."""

    def __init__(self, inside=lambda: True):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
        self.watch = RepeatWatch(inside)
        self.loss = 0.0

    def __call__(self, *args, **kwargs):
        def inner(x, *, flag=None, y=None):
            return self.model(x)

        return self.watch.around(self.model, inner)(*args, **kwargs)

    def train(self, outputs):
        outputs.square().sum().backward()

    def steps(self, body, number=6):
        for _ in range(number):
            body(torch.randn(3, 4))
            self.watch.step()
        return self.watch.facts()


def hits_after(loop):
    def body(x):
        loop.train(loop(x))
        loop.watch.step()  # the optimizer's step lies between the two calls
        loop(x).argmax(1)

    return body


def hits_before(loop):
    def body(x):
        loop.train(loop(x))
        loop(x).argmax(1)

    return body


def hits_without_gradients(loop):
    def body(x):
        loop.train(loop(x))
        with torch.no_grad():
            loop(x)

    return body


def hits_by_name(loop):
    def body(x):
        loop.train(loop(x=x, flag=True))
        loop(x=x, flag=True)

    return body


@pytest.mark.parametrize("make", [hits_after, hits_before, hits_without_gradients, hits_by_name])
def test_a_second_pass_for_counting_is_found(make):
    loop = Loop()
    (found,) = loop.steps(make(loop))
    assert found.count == 6 and found.seconds > 0
    assert (found.place.file, found.place.function) == (__file__, "Loop.__call__")


def two_masks(loop):
    """R-Drop, SimCSE: two masks of one batch, both learned from."""

    def body(x):
        loop.train(loop(x) - loop(x))

    return body


def accumulated(loop):
    def body(x):
        loop.train(loop(x))
        loop.train(loop(x))

    return body


def another_batch(loop):
    def body(x):
        loop.train(loop(x))
        loop(x + 1)

    return body


def written_to(loop):
    def body(x):
        loop.train(loop(x))
        x.add_(1)
        loop(x)

    return body


def another_argument(loop):
    def body(x):
        loop.train(loop(x, flag="encode"))
        loop(x, flag="decode")

    return body


def in_evaluation_mode(loop):
    def body(x):
        loop.train(loop(x))
        loop.model.eval()
        loop(x)
        loop.model.train()

    return body


def first_without_gradients(loop):
    """PPO: probabilities before the update, then the pass that is learned from."""

    def body(x):
        with torch.no_grad():
            loop(x)
        loop.train(loop(x))

    return body


def another_model(loop):
    other = Loop()

    def body(x):
        loop.train(loop(x))
        loop.watch.around(other.model, other.model)(x)

    return body


def two_steps_later(loop):
    """A whole graph, or a batch that is kept: the next epoch's pass, and what lies long before."""
    kept = []

    def body(x):
        kept.append(x)
        loop.train(loop(x))
        if len(kept) > 2:
            loop(kept[-3])

    return body


@pytest.mark.parametrize(
    "make",
    [
        two_masks, accumulated, another_batch, written_to, another_argument, in_evaluation_mode,
        first_without_gradients, another_model, two_steps_later,
    ],
)  # fmt: skip
def test_what_is_no_repetition_in_vain_is_not_found(make):
    loop = Loop()
    assert loop.steps(make(loop)) == ()


def test_the_same_tensor_in_each_step_is_learned_from_each_time():
    loop, graph = Loop(), torch.randn(3, 4)
    assert loop.steps(lambda _: loop.train(loop(graph))) == ()


def test_validation_is_not_looked_at():
    loop = Loop(lambda: False)
    assert loop.steps(hits_before(loop)) == ()


def test_tensors_of_inference_mode_and_odd_outputs_do_no_harm():
    loop = Loop()
    with torch.inference_mode():
        x = torch.randn(3, 4)
    odd = loop.watch.around(loop.model, lambda x: {"text": "a", "none": None, "all": [x]})
    for _ in range(3):
        odd(x)
        odd(torch.ones(2))
    loop.watch.step()
    assert loop.watch.facts() == ()


def test_no_batch_is_kept_alive():
    import weakref

    loop = Loop()
    x = torch.randn(3, 4)
    gone = weakref.ref(x)
    loop(x)
    del x
    assert gone() is None


@pytest.mark.parametrize(("between", "changed"), [(True, 6), (False, 0)])
def test_weights_that_change_between_the_two_calls_are_told(between, changed):
    loop = Loop()
    loop.model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1)

    def body(x):
        loop.train(loop(x))
        if between:
            optimizer.step()
        loop(x)

    (found,) = loop.steps(body)
    assert (found.count, found.changed, found.marked) == (6, changed, 0)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(4)])
def test_a_second_call_that_draws_or_counts_is_told(layer):
    loop = Loop()
    loop.model = nn.Sequential(layer, nn.Linear(4, 2))
    (found,) = loop.steps(hits_before(loop))
    assert (found.count, found.changed, found.marked) == (6, 0, 6)
