"""Rows on a device are gathered as the widest numbers they can be read as: with their bits, and as views of nothing."""

import itertools

import pytest
import torch

from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.cache.columns import DeviceColumn

TYPES = [torch.uint8, torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.complex64]
SHAPES = [(), (1,), (3,), (7,), (8,), (2, 3), (4, 4), (3, 4, 8)]


def as_bytes(rows):
    return rows.contiguous().view(-1).view(torch.uint8)


@pytest.mark.parametrize(("dtype", "shape"), list(itertools.product(TYPES, SHAPES)))
@pytest.mark.slow
def test_rows_come_with_their_bits_and_strides(dtype, shape):
    bits = torch.randint(0, 256, (11, *shape, dtype.itemsize), dtype=torch.uint8)
    bits = bits & 1 if dtype is torch.bool else bits
    rows = bits.view(dtype).view(11, *shape)
    straight = tuple(range(len(shape) + 1))
    for axes in {straight, (0, *straight[:0:-1]), (0, *straight[2:], *straight[1:2])}:
        kind = Rows(shape, dtype, axes)
        column = DeviceColumn(kind, 11, torch.zeros(11 * kind.num_bytes, dtype=torch.uint8))
        column.write(torch.arange(11), rows)
        for wanted in ([3, 0, 10, 3], [5], []):
            places = torch.tensor(wanted, dtype=torch.int64)
            found = column.read(places, places)
            wanted_rows = rows[places]
            assert found._base is None
            assert found.shape == wanted_rows.shape
            assert found.permute(axes).is_contiguous()
            assert torch.equal(as_bytes(found), as_bytes(wanted_rows))


def test_rows_of_no_bytes_are_gathered_too():
    kind = Rows((3, 0), torch.float32, (0, 1, 2))
    column = DeviceColumn(kind, 5, torch.zeros(0, dtype=torch.uint8))
    assert column.read(torch.tensor([1, 2]), torch.tensor([1, 2])).shape == (2, 3, 0)
