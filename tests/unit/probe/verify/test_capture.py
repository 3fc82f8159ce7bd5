"""The state of a training, kept and put back in place, and how far tensors are off."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.verify.capture import Capture, copy_of, deviations, read_capture, write_capture
from flatout.probe.verify.replay import _not_finite, _rounding, gradients, nudge


def train(model, optimizer, steps):
    torch.manual_seed(steps)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 3, 8, 8)).square().mean().backward()
        optimizer.step()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "rprop": lambda p: torch.optim.Rprop(p),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_training_goes_on_from_a_captured_state_bit_for_bit(kind, tmp_path):
    model = network()
    optimizer = OPTIMIZERS[kind](model.parameters())
    train(model, optimizer, 3)
    write_capture(tmp_path / "state.pt", {"state": Capture([optimizer], [model]).state()})
    train(model, optimizer, 2)
    wanted = copy_of(model.state_dict())
    train(model, optimizer, 4)
    identities = [parameter.data_ptr() for parameter in model.parameters()]
    body = read_capture(tmp_path / "state.pt")
    Capture([optimizer], [model]).put_back(body["state"])
    train(model, optimizer, 2)
    assert [parameter.data_ptr() for parameter in model.parameters()] == identities
    for name, value in model.state_dict().items():
        assert torch.equal(value, wanted[name]), name


def test_layouts_stay_when_a_state_is_put_back():
    model, other = network(), network().to(memory_format=torch.channels_last)
    one, two = (torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, other))
    train(model, one, 2)
    train(other, two, 1)
    strides = [parameter.stride() for parameter in other.parameters()]
    Capture([two], [other]).put_back(Capture([one], [model]).state())
    assert [parameter.stride() for parameter in other.parameters()] == strides
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_damaged_or_missing_capture_is_no_capture(tmp_path):
    assert read_capture(tmp_path / "none.pt") is None


def test_deviations_name_what_is_missing_and_measure_the_rest():
    truth = {"a": torch.tensor([3.0, 4.0]), "b": torch.ones(4), "c": torch.zeros(2)}
    found = {"a": torch.tensor([3.03, 4.04]), "c": torch.zeros(2), "d": torch.ones(1)}
    result = deviations(found, truth, {"a": "weight", "b": "bias"})
    rows = {row[0]: row for row in result["rows"]}
    assert rows["weight"][1] == pytest.approx(0.01, rel=1e-3)
    assert rows["weight"][3] == pytest.approx(1.01, rel=1e-6)
    assert rows["bias"][1] is None
    assert rows["c"][1] == 0.0
    assert rows["weight"][4] == pytest.approx(25 / 29)
    assert result["extra"] == ["d"]
    assert math.isinf(deviations({"c": torch.ones(2)}, {"c": torch.zeros(2)}, {})["rows"][0][1])


def test_a_nudge_moves_every_weight_by_one_unit_and_draws_nothing_from_the_script():
    model = network()
    before = {name: value.clone() for name, value in model.named_parameters()}
    state = torch.get_rng_state()
    nudge(dict(model.named_parameters()), 0.0, 7)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.named_parameters():
        off = (value - before[name]).abs()
        assert bool((off > 0).all()), name
        assert bool((off <= before[name].abs() * 2**-22 + 1e-38).all()), name


@pytest.mark.parametrize(
    ("shape", "dtype", "chip", "convolutions", "products", "share"),
    [
        ((8, 3, 3, 3), torch.float32, (9, 0), True, False, 2.0**-11),
        ((8, 3), torch.float32, (9, 0), True, False, 0.0),
        ((8, 3), torch.float32, (8, 0), False, True, 2.0**-11),
        ((8,), torch.float32, (9, 0), True, True, 0.0),
        ((8, 3, 3, 3), torch.bfloat16, (9, 0), True, True, 0.0),
        ((8, 3, 3, 3), torch.float32, (7, 5), True, True, 0.0),
    ],
)
@pytest.mark.parametrize("torch_2_9", [True, False])
def test_weights_are_nudged_by_the_rounding_of_the_products_that_they_go_through(
    monkeypatch, shape, dtype, chip, convolutions, products, share, torch_2_9
):
    def setting(in_tf32):
        return SimpleNamespace(**{"fp32_precision": "tf32" if in_tf32 else "ieee"} if torch_2_9 else {})

    cudnn = SimpleNamespace(conv=setting(convolutions), allow_tf32=convolutions)
    matmul = SimpleNamespace(**vars(setting(products)), allow_tf32=products)
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    monkeypatch.setattr(torch.backends.cuda, "matmul", matmul)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: chip)
    weight = SimpleNamespace(device=torch.device("cuda"), dtype=dtype, dim=lambda: len(shape))
    assert _rounding(weight) == share


def test_only_gradients_that_are_there_are_taken():
    model = network()
    model[3](torch.randn(2, 144)).sum().backward()
    assert set(gradients(dict(model.named_parameters()))) == {"3.weight", "3.bias"}


def test_sparse_gradients_are_compared_as_dense_ones():
    table = torch.nn.Embedding(6, 2, sparse=True)
    table(torch.tensor([1, 1, 4])).sum().backward()
    found = gradients({"0.0": table.weight})
    assert found["0.0"].tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [1, 1], [0, 0]]
    assert _not_finite(found, {}) == []
    assert deviations(found, {"0.0": table.weight.grad.to_dense()}, {})["all"][0] == 0
