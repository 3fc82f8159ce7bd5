"""The operation as its author wrote it: told from subclasses and from those that somebody has changed."""

import pytest
from tests.unit.pipeline.compile.kernels.samples import T, v2
from torch import nn

from flatout.pipeline.compile.kernels.core.original import (
    class_of,
    functional,
    is_v2,
    number_of_channels,
    only_has,
    pillow_filter,
)


class Mine(T.Resize):
    pass


@pytest.mark.parametrize(
    ("operation", "name", "modern"),
    [
        (T.Resize(3), ("torchvision.transforms.transforms", "Resize"), False),
        (v2.Resize(3), ("torchvision.transforms.v2._geometry", "Resize"), True),
        (Mine(3), (Mine.__module__, "Mine"), False),
    ],
)
def test_the_class_and_the_generation(operation, name, modern):
    assert class_of(operation) == name
    assert is_v2(operation) is modern
    assert functional(operation).__name__ == f"torchvision.transforms{'.v2' if modern else ''}.functional"


class Plain:
    def __init__(self):
        self.a = 1


def changed(**attributes):
    operation = T.CenterCrop(3)
    vars(operation).update(attributes)
    return operation


def hooked():
    operation = T.CenterCrop(3)
    operation.register_forward_hook(lambda *_: None)
    return operation


@pytest.mark.parametrize(
    ("operation", "names", "expected"),
    [
        (Plain(), {"a"}, True),
        (Plain(), set(), False),
        (T.CenterCrop(3), {"size"}, True),
        (T.CenterCrop(3), {"size", "more"}, False),
        (changed(more=1), {"size"}, False),
        (changed(forward=print), {"size"}, False),
        (hooked(), {"size"}, False),
        (nn.Identity(), set(), True),
        (nn.Sequential(nn.Identity()), set(), False),
    ],
)
def test_only_what_has_nothing_of_its_own_is_known(operation, names, expected):
    assert only_has(operation, frozenset(names)) is expected


@pytest.mark.parametrize(
    ("interpolation", "number"),
    [
        (T.InterpolationMode.BILINEAR, 2),
        (T.InterpolationMode.NEAREST_EXACT, 0),
        (T.InterpolationMode.LANCZOS, 1),
        ("bicubic", 3),
        (2, 2),
        (9, None),
        ("none", None),
        (None, None),
    ],
)
def test_pillows_number_of_an_interpolation(interpolation, number):
    assert pillow_filter(interpolation) == number


def test_a_pixel_has_one_byte_for_each_letter_of_its_mode():
    assert (number_of_channels("L"), number_of_channels("RGB")) == (1, 3)
