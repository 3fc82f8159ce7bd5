"""What a tensor has besides its numbers, and how a process computes, are part of what a kept result was made from.

Covers flatout.kept.tensor_methods, flatout.kept.read_state, flatout.kept.observed_call and
flatout.watch.memory.buffers through it.
"""

import abc
import warnings

import numpy as np
import pytest
import torch
from tests.unit.kept import tables
from tests.unit.kept.test_kept_function import Kept
from tests.unit.kept.test_kept_module import Encoder, images
from tests.unit.kept.test_kept_module import Kept as KeptEncoder

from flatout.probe.core.seams import Seams

pytestmark = pytest.mark.slow

WEIGHTS = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
ROWS = np.zeros(4)


@pytest.fixture(autouse=True)
def as_they_were():
    for number, weight in enumerate(WEIGHTS):
        weight.grad, weight.rate = torch.full((3, 2), 0.1), number + 1.0
        vars(weight).pop("group", None)


def share_of_gradients(most):
    """How much gradients are cut: not at all for as long as they are small."""
    tables.slow(1)
    return min(1.0, most / sum(float(weight.grad.square().sum()) for weight in WEIGHTS) ** 0.5)


def rates():
    tables.slow(1)
    return [weight.rate for weight in WEIGHTS]


def groups():
    tables.slow(1)
    found = []
    for weight in WEIGHTS:
        try:
            found.append(weight.group)
        except AttributeError:
            found.append("none")
    return found


def largest():
    return [[weight.amax().item() + tables.slow(1) for weight in WEIGHTS]]


CHANGES = {
    "a gradient that is another one": (share_of_gradients, lambda: setattr(WEIGHTS[1], "grad", torch.ones(3, 2))),
    "a gradient that is written to": (share_of_gradients, lambda: WEIGHTS[0].grad.mul_(50)),
    "an attribute": (rates, lambda: setattr(WEIGHTS[1], "rate", 9.0)),
    "an attribute that was not there": (groups, lambda: setattr(WEIGHTS[0], "group", "last")),
}


@pytest.mark.parametrize(("function", "change"), CHANGES.values(), ids=CHANGES)
def test_what_a_tensor_has_besides_its_numbers_is_read(function, change):
    kept, args = Kept(function), (1.0,) if function is share_of_gradients else ()
    assert kept.again(*args) == 4, kept.left
    change()
    assert kept.again(*args, times=1) == 0
    assert kept.again(*args, times=5) == 2


def test_a_gradient_that_is_gone_is_seen():
    kept = Kept(lambda: [WEIGHTS[0].grad is None, tables.slow(1)])
    assert kept.again() == 4, kept.left
    WEIGHTS[0].grad = None
    assert kept.again(times=1) == 0


def test_a_method_of_tensors_that_is_another_one_is_seen(monkeypatch):
    kept, plain = Kept(largest), torch.Tensor.amax
    assert kept.again() == 4, kept.left
    monkeypatch.setattr(torch.Tensor, "amax", lambda tensor: plain(tensor) * 2, raising=False)
    assert kept.again(times=1) == 0


def test_a_method_that_flatout_stands_in_for_is_the_same():
    kept = Kept(largest)
    assert kept.again() == 4, kept.left
    ours = eval("lambda original, hits: lambda *args: original(*args)", {"__name__": "flatout.fixes.another"})
    seams = Seams()
    seams.wrap("torch:Tensor.amax", ours)
    assert kept.again(times=2) == 2
    seams.undo()
    assert kept.again(times=2) == 2


def small():
    return [float(torch.full((1,), 2e-38) * 0.01), tables.slow(1)]


def test_numbers_that_the_processor_flushes_to_zero_are_others():
    kept = Kept(small)
    assert kept.again() == 4, kept.left
    torch.set_flush_denormal(True)
    try:
        assert kept.again(times=3) == 0
    finally:
        torch.set_flush_denormal(False)
    assert kept.again(times=1) == 1


def logarithms():
    return [*np.log(ROWS), tables.slow(1)]


@pytest.mark.parametrize("action", ["default", "always", "ignore", "module"])
def test_a_function_that_warns_is_called_each_time(action):
    kept = Kept(logarithms)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter(action)
        for _ in range(6):
            kept.call()
        assert kept.acted == 0
        assert len(kept.left) == 1 and "warn" in kept.left[0]
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            kept.call()


class Scaled(Encoder):
    def __init__(self):
        super().__init__()
        self.shift = torch.zeros(24)
        self.shift.by, self.shift.grad = [2.0], torch.ones(24)

    def forward(self, x):
        return super().forward(x) * self.shift.by[0] * self.shift.grad


@pytest.mark.parametrize("change", [lambda t: t.by.__setitem__(0, 3.0), lambda t: t.grad.mul_(5)])
def test_a_frozen_module_whose_tensors_have_more_than_numbers(change):
    kept, batches = KeptEncoder(Scaled()), images(32).split(8)
    assert kept.passes(batches) > 0, kept.left
    change(kept.module.shift)
    assert kept.passes(batches, times=1) == 0


class Padded(Encoder):
    def forward(self, x):
        return super().forward(x) * getattr(x, "length", 1.0)


def test_a_batch_with_an_attribute_of_its_own_is_not_told_by_its_rows():
    kept, batch = KeptEncoder(Padded()), images(8)
    kept.passes([batch])
    for length in (2.0, 3.0):
        batch.length = length
        assert kept.call(batch).equal(kept.module(batch))


class Shape(abc.ABC):  # noqa: B024 - others are registered with it
    """Of which others may say that they are one, at any time."""


class Square:
    pass


SQUARE = Square()


def is_shape():
    return [isinstance(SQUARE, Shape), tables.slow(1)]


def test_a_class_that_is_registered_with_another_one_is_of_its_kind():
    kept = Kept(is_shape)
    assert kept.again() == 4, kept.left
    Shape.register(Square)
    assert kept.again(times=1) == 0
    assert kept.call()[0] is True
