"""Which of torch's implementations an optimizer works with, and which it could."""

import pytest
import torch
from torch import nn

from flatout.probe.model.optimizer_facts import optimizer_facts, parameters_of, sparse_weights
from flatout.schema.run import Frame


def weights(device="cpu", dtype=torch.float32):
    return [nn.Parameter(torch.ones(2, device=device, dtype=dtype)) for _ in range(3)]


class Mine(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})


@pytest.mark.parametrize(
    ("optimizer", "implementation", "available"),
    [
        (torch.optim.SGD(weights(), lr=0.1), "loop", True),
        (torch.optim.Adam(weights(), foreach=True), "foreach", True),
        (torch.optim.AdamW(weights(), fused=True), "fused", True),
        (torch.optim.Adam(weights("meta")), "foreach", True),
        (torch.optim.Adam(weights("meta"), foreach=False), "loop", True),
        (torch.optim.RMSprop(weights()), "loop", False),
        (torch.optim.Adam(weights(), differentiable=True), "loop", False),
        (Mine(weights()), "", False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_implementation(optimizer, implementation, available):
    found = optimizer_facts(optimizer, None)
    assert (found.implementation, found.fused_available) == (implementation, available)
    assert found.name == type(optimizer).__name__
    assert found.from_torch == (type(optimizer) is not Mine)
    assert found.num_tensors == 3


def test_what_else_is_told():
    place = Frame("train.py", 3, "main")
    found = optimizer_facts(torch.optim.SGD(weights(dtype=torch.complex64), lr=0.1), place, turns=4)
    assert (found.created_at, found.turns, found.has_complex) == (place, 4, True)
    assert not optimizer_facts(torch.optim.SGD(weights(), lr=0.1), None).has_complex


def test_adagrad_asks_torch_for_its_kernel():
    optimizer = torch.optim.Adagrad(weights())
    has = torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_adagrad_", "CPU")
    assert optimizer_facts(optimizer, None).fused_available is has
    assert not optimizer_facts(torch.optim.Adagrad(weights("meta")), None).fused_available


def test_tables_with_sparse_gradients_have_no_fused_optimizer():
    model = nn.ModuleList([nn.Embedding(4, 2, sparse=True), nn.EmbeddingBag(4, 2), nn.Linear(2, 1)])
    sparse = sparse_weights([model])
    assert sparse == {id(model[0].weight)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert optimizer_facts(optimizer, None).fused_available
    assert not optimizer_facts(optimizer, None, sparse=sparse).fused_available


def test_an_optimizer_without_parameters_is_told_all_the_same():
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    optimizer.param_groups.clear()
    found = optimizer_facts(optimizer, None)
    assert (found.num_tensors, found.implementation, list(parameters_of(optimizer))) == (0, "loop", [])
