"""Padding and cropping by looking up where each row and column comes from: as numpy pads and Pillow crops."""

import numpy as np
import pytest
import torch
from PIL import Image

from flatout.pipeline.compile.kernels.core.edge_lookup import Edges, cut, edges_of, fill_of, padded
from flatout.pipeline.compile.kernels.core.kernel import Unsuited

BATCH = torch.arange(2 * 3 * 4 * 3, dtype=torch.uint8).reshape(2, 3, 4, 3)
GRAY = torch.arange(2 * 3 * 4, dtype=torch.uint8).reshape(2, 3, 4)
FORMS = {"RGB": BATCH, "L": GRAY, "channels first": BATCH.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
@pytest.mark.parametrize("sides", [(1, 2, 3, 1), (0, 0, 0, 2), (7, 9, 8, 5)])
def test_edges_are_numpys(form, mode, sides):
    batch = FORMS[form]
    left, top, right, bottom = sides
    wanted = np.pad(batch.numpy(), [(0, 0), (top, bottom), (left, right), *[(0, 0)] * (batch.dim() - 3)], mode=mode)
    assert np.array_equal(padded(batch, Edges(*sides, mode=mode)).numpy(), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_a_constant_edge_has_one_byte_a_channel(form):
    batch = FORMS[form]
    fill = (7, 8, 9) if batch.dim() == 4 else (7,)
    made = padded(batch, Edges(1, 0, 0, 2, fill=fill))
    assert torch.equal(made[:, :3, 1:], batch)
    assert made[0, 4, 2].tolist() == ([7, 8, 9] if batch.dim() == 4 else 7)
    assert made.shape[1:3] == (5, 5)


def test_one_pixel_is_repeated_and_none_cannot_be():
    assert padded(GRAY[:, :1, :1], Edges(2, 0, 2, 0, "reflect"))[1].tolist() == [[12] * 5]
    with pytest.raises(Unsuited, match="without pixels"):
        padded(GRAY[:, :0], Edges(0, 1, 0, 0, "symmetric"))


@pytest.mark.parametrize("window", [(0, 0, 3, 4), (1, 1, 2, 2), (-1, -2, 3, 3), (2, 3, 4, 4), (-2, -2, 9, 9)])
@pytest.mark.parametrize("form", FORMS)
def test_a_window_is_pillows_black_where_it_lies_outside(form, window):
    batch, (top, left, height, width) = FORMS[form], window
    made = cut(batch, *window)
    for row, values in zip(made, batch, strict=True):
        image = Image.fromarray(values.contiguous().numpy()).crop((left, top, left + width, top + height))
        assert np.array_equal(row.numpy(), np.asarray(image))
    assert made.data_ptr() != batch.data_ptr()


@pytest.mark.parametrize(
    ("padding", "sides"),
    [
        (2, (2, 2, 2, 2)),
        ([2], (2, 2, 2, 2)),
        ((1, 2), (1, 2, 1, 2)),
        ([1, 2, 3, 4], (1, 2, 3, 4)),
        ([1, 2, 3], None),
        (-1, None),
        ((1.0, 2), None),
    ],
)
def test_sides_are_given_as_one_two_or_four_numbers(padding, sides):
    found = edges_of(padding, "edge", (0,))
    assert (found and (found.left, found.top, found.right, found.bottom)) == sides
    assert edges_of(2, "wrap", (0,)) is None


@pytest.mark.parametrize(
    ("fill", "channels", "expected"),
    [
        (None, 3, (0, 0, 0)),
        (7, 3, (7, 7, 7)),
        (7.9, 1, (7,)),
        ((1, 2, 3), 3, (1, 2, 3)),
        ([4], 3, (4, 4, 4)),
        ((1, 2), 3, None),
        ((1,), 1, None),  # Pillow reads a tuple in a way of its own
        (300, 1, None),
        (-1, 3, None),
    ],
)
def test_a_fill_is_one_byte_a_channel(fill, channels, expected):
    assert fill_of(fill, channels) == expected
