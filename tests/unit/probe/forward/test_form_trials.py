"""Two forms of one result: that they come to the same, and that each is timed."""

import pytest
import torch
from torch.nn import functional as F

from flatout.probe.forward.form_trials import convolution, differences, enlargement, timed


def drawn(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("x", "weight", "stride", "padding", "groups"),
    [
        ((2, 1, 400), (1, 1, 120), (1,), (0,), 1),
        ((1, 6, 301), (6, 1, 97), (1,), (48,), 6),
        ((3, 4, 200), (8, 2, 33), (2,), (5,), 2),
        ((2, 3, 250), (5, 3, 31), (3,), (0,), 1),
        ((2, 4, 40, 37), (4, 1, 15, 13), (1, 1), (7, 6), 4),
        ((1, 3, 30, 30), (2, 3, 11, 11), (2, 1), (5, 0), 1),
    ],
)
def test_a_convolution_by_transforms_is_the_same(x, weight, stride, padding, groups):
    kind = F.conv1d if len(x) == 3 else F.conv2d
    given = drawn(*x), drawn(*weight), drawn(weight[0])
    trial = convolution(*given, stride, padding, groups, (True, True, True))
    expected = kind(*given, stride=stride, padding=padding, groups=groups)
    ((words, other),) = trial.others
    assert torch.allclose(trial.written(*given), expected)
    assert torch.allclose(other(*given), expected)
    assert "fft" in words


@pytest.mark.parametrize("power", ["square", "abs", "norm"])
def test_distances_are_the_same_in_every_form(power):
    trial = differences(2, (7, 5), 3, power, (True, True), dtype=torch.float64, picked=False)
    x, y = drawn(2, 7, 3), 1 - drawn(2, 5, 3)
    assert all(torch.allclose(form(x, y), trial.written(x, y)) for _, form in trial.others)


def test_an_enlargement_and_a_convolution_of_points_may_change_places():
    x, weight, bias = drawn(1, 6, 4, 5), drawn(2, 6, 1, 1), drawn(2)
    trial = enlargement(
        x, lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), weight, bias, (True, True, True)
    )
    ((_, other),) = trial.others
    assert torch.allclose(other(x, weight, bias), F.conv2d(F.interpolate(x, (8, 10), mode="bilinear"), weight, bias))


@pytest.mark.parametrize("learns", [(False, False), (True, True)])
def test_backward_passes_are_timed_where_gradients_are_asked_for(learns):
    measured = timed(differences(1, (40, 40), 8, "square", learns, dtype=torch.float32, picked=False))
    assert measured.n >= 3
    assert measured.forward_s > 0
    assert measured.other_s > 0
    assert (measured.alone_s > measured.forward_s) is any(learns)


def test_of_what_only_gives_indices_no_backward_pass_is_timed():
    measured = timed(differences(1, (40, 40), 8, "square", (True, True), dtype=torch.float32, picked=True))
    assert measured.alone_s == measured.forward_s


def test_a_form_that_gives_something_else_is_not_timed():
    trial = differences(1, (9, 9), 2, "square", (False, False), dtype=torch.float32, picked=False)
    wrong = type(trial)(trial.shapes, trial.learns, trial.dtype, trial.written, (("wrong", lambda x, y: x @ y.mT),))
    assert timed(wrong) is None
