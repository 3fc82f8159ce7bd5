"""Which calls of a user's function are known to be given and to return the same in every step."""

from threading import get_ident
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.forward.unchanging_calls import CallWatch

EDGES = torch.rand(12, 12, generator=torch.Generator().manual_seed(0)) < 0.3


class Network(nn.Module):
    """A network whose forward pass is a function of it and a batch."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.body = body
        self.kept = None
        self.count = 0

    def forward(self, x):
        return self.body(self, x) * self.weight


def watched(body, steps=13, fetching=False, possible=False, wall_ns=1):
    """Return what was found in a training of a network."""
    log = SimpleNamespace(
        tracing=SimpleNamespace(possible=possible),
        thread=get_ident(),
        fetching=fetching,
        tracker=SimpleNamespace(trouble=raise_it),
    )
    network, watch = Network(body), CallWatch(log)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(steps):
        network(torch.rand(4, 12)).sum().backward()
        optimizer.step()
        watch.step(SimpleNamespace(wall_ns=wall_ns))
    watch.stop()
    return watch.facts()


def spread(size):
    return [[abs(a - b) % 5 for a in range(size)] for b in range(size)]


def table_of(size, kind="list"):
    rows = spread(size)
    return {"list": rows, "array": np.array(rows), "tensor": torch.tensor(rows)}[kind]


def neighbours(mask):
    return [(a, b) for a in range(len(mask)) for b in range(len(mask)) if mask[a, b]]


def as_list(net, x):
    return x @ torch.tensor(table_of(12), dtype=torch.float32)


def as_tensor(net, x):
    return x @ table_of(x.shape[1], kind="tensor").float()


def as_array(net, x):
    return x @ torch.from_numpy(table_of(12, "array")).float()


def of_a_tensor_that_stays(net, x):
    return x[:, [a for a, _ in neighbours(EDGES)]]


@pytest.mark.parametrize(
    ("body", "function"),
    [
        (as_list, "table_of"),
        (as_tensor, "table_of"),
        (as_array, "table_of"),
        (of_a_tensor_that_stays, "neighbours"),
    ],
)
def test_what_is_made_again_in_python_is_found(body, function):
    found = {each.function: each for each in watched(body) if each.place.function == body.__name__}
    assert set(found) == {function}
    assert found[function].calls == 1
    assert found[function].steps == 3
    assert found[function].numbers >= 16
    assert found[function].file == found[function].place.file == __file__


def scaled(x):
    return (x > -1).float().tolist()


def of_the_batch(net, x):
    return x + torch.tensor(scaled(x))


def of_the_weight(net, x):
    return x + table_of_weight(net)


def table_of_weight(net):
    return net.weight.detach() * torch.ones(4, 12)


def a_few_numbers(net, x):
    return x * corners(4)[0]


def corners(size):
    return [size, size]


def counted(net, x):
    net.count += 1
    return x * torch.tensor(numbers_from(net))[:12]


def numbers_from(net):
    return [net.count + n for n in range(12)] * 2


def kept_once(net, x):
    return x * kept_by(net)[0]


def kept_by(net):
    if net.kept is None:
        net.kept = torch.arange(24.0).reshape(2, 12)
    return net.kept


def at_random(net, x):
    return x + drawn(12)


def drawn(size):
    return torch.rand(4, size)


def another_each_time(net, x):
    net.count += 1
    return x * sum(table_of(12 + net.count)[0])


@pytest.mark.parametrize(
    "body", [of_the_batch, of_the_weight, a_few_numbers, counted, kept_once, at_random, another_each_time]
)
def test_other_calls_are_not(body):
    known = {"of_the_batch", "scaled", "table_of_weight", "corners", "numbers_from", "kept_by", "drawn", "table_of"}
    assert not {each.function for each in watched(body)} & known


@pytest.mark.parametrize(
    "setting", [{"steps": 10}, {"fetching": True}, {"possible": True}, {"wall_ns": 10**12}], ids=str
)
def test_nothing_is_said_too_early_of_loaders_of_what_is_compiled_and_of_what_is_short(setting):
    assert watched(as_list, **setting) == ()


def test_who_profiles_already_goes_on(monkeypatch):
    monkeypatch.setattr("sys.getprofile", lambda: print)
    assert watched(as_list) == ()
