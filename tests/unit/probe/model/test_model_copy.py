"""One call of a model, kept to be made again on a copy of it."""

import pytest
import torch
from torch import nn

from flatout.probe.model import model_copy
from flatout.probe.model.model_copy import CallKeeper, KeptCall, timed_pass

X = torch.ones(2, 3)


def linear(**attributes):
    model = nn.Linear(3, 1)
    vars(model).update(attributes)
    return model


def with_hook():
    model = linear()
    model.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("model", "args", "possible"),
    [
        (linear(), (X,), True),
        (linear(), (X, {"mask": None, "n": [1, 2.0, "a", True]}), True),
        (linear(), (X, object()), False),
        (linear(), (torch.empty(2**27),), False),  # 512 MB of what is given
        (with_hook(), (X,), False),
        (nn.Sequential(linear(), with_hook()), (X,), False),
        (linear(table=list(range(1001))), (X,), False),
        (linear(table=list(range(1000))), (X,), True),
        (linear(cache=torch.empty(2**20)), (X,), False),
        (linear(data=torch.utils.data.TensorDataset(X)), (X,), False),
        (nn.Linear(3, 1, device="meta"), (X,), False),
    ],
)
def test_a_model_is_copied_only_where_its_copy_is_a_stranger_to_it(model, args, possible):
    assert KeptCall.possible(model, args, {}) is possible


def test_not_under_autocast_nor_beside_other_ranks(monkeypatch):
    with torch.autocast("cpu"):
        assert not KeptCall.possible(linear(), (X,), {})
    monkeypatch.setattr(model_copy, "local_ranks", lambda: 2)
    assert not KeptCall.possible(linear(), (X,), {})


def test_what_was_given_is_kept_as_it_was():
    x = torch.ones(2, 3, dtype=torch.float64)
    kept = KeptCall(linear(), (x, 3), {"mask": torch.zeros(2)})
    x.fill_(7.0)
    (first, number), named = kept.given(torch.float32)
    assert (first.dtype, first.tolist()) == (torch.float32, [[1.0] * 3] * 2)
    assert (number, named["mask"].dtype) == (3, torch.float32)
    assert kept.given()[0][0].dtype is torch.float64


def test_a_copy_has_weights_of_its_own_and_trains_as_the_model_did():
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout())
    kept = KeptCall(model, (X,), {})
    model.eval()
    copied = kept.copied()
    assert copied.training
    assert copied[1].training
    assert not model.training
    assert copied[0].weight is not model[0].weight
    assert torch.equal(copied[0].weight, model[0].weight)


def called(keeper, model, times=3, wanted=None):
    for _ in range(times):
        keeper.around(model, model.forward, wanted or (lambda: model))(X)


def test_the_call_of_that_number_is_kept_each_module_by_itself():
    keeper, first, second = CallKeeper(2), linear(), linear()
    called(keeper, first, 1)
    called(keeper, second, 1)
    assert keeper.kept is None
    called(keeper, second, 1)
    assert keeper.kept.module is second
    called(keeper, first, 2)
    assert keeper.take().module is second
    assert keeper.take() is None


def test_a_long_call_is_not_made_again(monkeypatch):
    keeper, times = CallKeeper(1), iter([0.0, 0.6])
    monkeypatch.setattr(model_copy, "perf_counter", lambda: next(times))
    called(keeper, linear(), 1)
    assert keeper.kept is not None
    assert keeper.take() is None


def test_nothing_that_fails_ends_the_script():
    def wanted():
        raise RuntimeError("no such model")

    keeper = CallKeeper(1)
    called(keeper, linear(), 2, wanted)
    assert keeper.kept is None
    called(CallKeeper(1), linear(), 1, lambda: None)


def test_a_pass_is_timed_with_its_gradients_and_leaves_none():
    model, seen = linear(), []
    model.weight.register_hook(seen.append)
    with torch.no_grad():
        assert timed_pass(model.forward, model, ((X,), {})) > 0
    assert len(seen) == 1
    assert model.weight.grad is None
    assert timed_pass(lambda x: x, model, ((X,), {})) >= 0  # nothing to differentiate
