"""Losses are read once, at the end, as Python floats."""

import math

import torch

from flatout.probe.model.losses import Losses


def test_values_are_exact_and_in_order():
    losses = Losses()
    losses.kept += [torch.tensor(0.1), 2.5, torch.tensor([3], dtype=torch.int64)]
    assert losses.values() == [float(torch.tensor(0.1)), 2.5, 3.0]


def test_what_is_no_number_is_nan_and_the_rest_stays():
    losses = Losses()
    losses.kept += [torch.ones(2), 1.0, None, torch.empty((), device="meta")]
    values = losses.values()
    assert values[1] == 1.0
    assert [math.isnan(value) for value in values] == [True, False, True, True]
