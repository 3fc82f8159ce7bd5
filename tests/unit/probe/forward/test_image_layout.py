"""Models of images timed in both layouts."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.forward.image_layout import LayoutWatch


def network(**layout):
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to(**layout)


def tried(model, shape=(2, 3, 12, 12), possible=False):
    watch = LayoutWatch(SimpleNamespace(tracing=SimpleNamespace(possible=possible)))
    for _ in range(8):
        watch.around(model, model)(torch.rand(shape))
    watch.measure()
    return watch.facts()


def test_both_layouts_are_timed_on_copies():
    model = network()
    before = [(one.clone(), one.stride()) for one in model.parameters()]
    found = tried(model)
    assert (found.model, found.n >= 1) == ("Sequential", True)
    assert found.first_s > 0 < found.last_s
    assert found.place.file == __file__
    for one, (value, stride) in zip(model.parameters(), before, strict=True):
        assert torch.equal(one, value)
        assert one.stride() == stride
        assert one.grad is None


@pytest.mark.parametrize(
    "model",
    [
        network(memory_format=torch.channels_last),
        nn.Sequential(nn.Conv2d(1, 4, 1)),
        nn.Sequential(nn.Flatten(), nn.Linear(432, 4)),
    ],
    ids=["channels-last already", "nothing to convert", "no images"],
)
def test_others_are_not(model):
    shape = (2, 1, 12, 12) if isinstance(model[0], nn.Conv2d) and model[0].in_channels == 1 else (2, 3, 12, 12)
    assert tried(model, shape) is None


def test_where_code_is_compiled_nothing_is_kept():
    assert tried(network(), possible=True) is None
