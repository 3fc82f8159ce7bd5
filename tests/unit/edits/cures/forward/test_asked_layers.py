"""Questions about layers and indices, as the edited script asks them."""

import pytest
import torch
from torch import nn

from flatout.edits.cures.forward.asked_layers import is_by_row, is_unwatched, picks_rows


class Own(nn.Linear):
    pass


def hooked(layer):
    layer.register_forward_pre_hook(lambda module, given: None)
    return layer


@pytest.mark.parametrize(
    ("layer", "in_sequence", "expected"),
    [
        (nn.Linear(2, 3), False, True),
        (Own(2, 3), False, False),
        (hooked(nn.Linear(2, 3)), False, False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), False, False),
        (nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 3), nn.ReLU()), True, True),
        (nn.Sequential(nn.LayerNorm((4, 2)), nn.Linear(2, 3)), True, False),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 3)), True, False),
        (nn.Sequential(nn.Linear(2, 3), nn.Softmax(1)), True, False),
        (nn.Sequential(hooked(nn.Linear(2, 3))), True, False),
        (nn.Linear(2, 3), True, False),
    ],
)
def test_layers_that_compute_each_row_by_itself(layer, in_sequence, expected):
    assert (
        bool(eval(is_by_row("torch", "layer", in_sequence=in_sequence), {"torch": torch, "layer": layer})) is expected
    )


def test_a_forward_that_is_set_is_another_one():
    layer = nn.Linear(2, 2)
    assert eval(is_unwatched("layer"), {"layer": layer})
    layer.forward = lambda x: x
    assert not eval(is_unwatched("layer"), {"layer": layer})


@pytest.mark.parametrize(
    ("rows", "alone", "expected"),
    [
        (1, True, True), (torch.tensor([1, 0]), True, True), (torch.ones(2, 3) > 0, True, True),
        (torch.ones(2, 3, 4) > 0, True, False), (slice(1), True, False), ([0, 1], True, False), (None, True, False),
        (torch.ones(2) > 0, False, False), (torch.tensor([1]), False, True), (True, True, False),
        (torch.tensor([1], dtype=torch.uint8), True, False),
    ],
)  # fmt: skip
def test_what_picks_rows(rows, alone, expected):
    text = picks_rows("torch", "x", 1 if alone else 2, ["rows"])
    assert bool(eval(text, {"torch": torch, "x": torch.ones(2, 3, 4), "rows": rows})) is expected
