"""A captured step in float64: what is doubled, what is written, and that all of it is turned back."""

from collections import namedtuple

import pytest
import torch
from torch import nn

from flatout.probe.verify.capture import Capture
from flatout.probe.verify.reference import Reference, _cast
from flatout.probe.verify.replay import CapturedSteps
from flatout.schema.order import VerifyOrder

Pair = namedtuple("Pair", "x y")


class Encoding:
    def __init__(self, data):
        self.data = data


def test_only_floats_are_cast_however_they_are_nested():
    x, n = torch.ones(2), torch.ones(2, dtype=torch.int64)
    half = torch.ones(2, dtype=torch.float16)
    given = {"pair": Pair(x, [n, (half, "text")]), "encoding": Encoding({"x": x})}
    cast = _cast(given, torch.float64)
    assert type(cast["pair"]) is Pair
    assert cast["pair"].x.dtype is torch.float64
    assert cast["pair"].y[0] is n
    assert cast["pair"].y[1] == (half, "text")
    assert cast["encoding"].data["x"].dtype is torch.float64
    assert _cast(cast, torch.float32)["pair"].x.dtype is torch.float32


@pytest.fixture
def training(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (tmp_path / "captures").mkdir()
    (tmp_path / "references").mkdir()
    order = VerifyOrder(
        role="reference", captures=str(tmp_path / "captures"), references=str(tmp_path / "references"), at=(0,)
    )
    capture = Capture([optimizer], [model])
    baseline = CapturedSteps(order, 0, lambda kind, body: None)
    x = torch.randn(4, 3)
    model(x).sum().backward()
    baseline.before_step(0, capture, 0, {"losses": [1.0]})
    optimizer.step()
    baseline.after_step(0, capture, 0)
    optimizer.zero_grad()
    return model, x, capture, order


def test_a_step_runs_in_double_precision_and_everything_is_turned_back(training):
    model, x, capture, order = training
    written = []
    reference = Reference(order, 0, lambda kind, body: written.append((kind, body)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert reference.doubled(x) is x
    assert reference.begin(0, capture)
    assert reference.active
    assert torch.get_default_dtype() is torch.float64
    call = reference.around(model, model.forward)
    assert call(x).dtype is torch.float64
    call(reference.doubled(x)).sum().backward()
    assert model[0].weight.grad.dtype is torch.float64
    reference.before_step(0, capture, 0, {})
    assert not reference.active
    assert torch.get_default_dtype() is torch.float32
    assert model[0].weight.grad.dtype is torch.float32
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32, torch.int64}
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in ("0.weight", "0.bias"))
    ((kind, body),) = written
    assert (kind, body["step"], body["double"]) == ("reference", 0, True)
    assert reference.around(model, model.forward)(x.double()).dtype is torch.float32


def test_without_a_capture_nothing_is_converted(training):
    model, _, capture, order = training
    reference = Reference(order, 3, lambda kind, body: None)  # of another rank
    assert not reference.begin(0, capture)
    assert not reference.active
    assert model[0].weight.dtype is torch.float32
    assert reference.around(model, model.forward) == model.forward
    reference.before_step(0, capture, 0, {})
