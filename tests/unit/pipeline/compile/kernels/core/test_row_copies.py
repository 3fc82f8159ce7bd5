"""Rows of a batch taken out, put back, or cut to windows, with channels where they were."""

import pytest
import torch

from flatout.native.pixels import channels_lead
from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.row_copies import new_images, put, taken, windows

PLAIN = torch.arange(4 * 5 * 6 * 3, dtype=torch.uint8).reshape(4, 5, 6, 3)
FORMS = {
    "RGB": PLAIN,
    "L": PLAIN[..., 0].contiguous(),
    "channels first": PLAIN.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
    "bfloat16": PLAIN.to(torch.bfloat16),
}


@pytest.fixture(params=FORMS)
def batch(request):
    return FORMS[request.param].clone(memory_format=torch.preserve_format)


def test_new_images_have_their_channels_where_the_batch_has_them(batch):
    made = new_images(batch, 2, 3)
    assert made.shape == (4, 2, 3, *batch.shape[3:])
    assert made.dtype == batch.dtype
    assert channels_lead(made) == channels_lead(batch)


def test_rows_that_are_taken_and_put_back_are_as_they_were(batch):
    chosen = torch.tensor([2, 0])
    rows = taken(batch, chosen)
    assert torch.equal(rows, batch[[2, 0]])
    assert rows.data_ptr() != batch.data_ptr()
    assert channels_lead(rows) == channels_lead(batch)
    wanted = batch.clone()
    wanted[[2, 0]] = rows.flip(1)
    put(batch, chosen, rows.flip(1))
    assert torch.equal(batch, wanted)


def test_each_row_has_a_window_of_its_own(batch):
    tops, lefts = torch.tensor([0, 1, 2, 3]), torch.tensor([3, 2, 1, 0])
    made = windows(batch, 1, tops, lefts, (2, 3))
    wanted = [row[top : top + 2, left : left + 3] for row, top, left in zip(batch, tops, lefts, strict=True)]
    assert torch.equal(made, torch.stack(wanted))
    assert channels_lead(made) == channels_lead(batch)


def test_windows_of_tensors_are_cut_from_their_last_axes():
    batch = FORMS["RGB"].permute(0, 3, 1, 2).contiguous()
    made = windows(batch, 2, torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1]), (2, 2))
    assert torch.equal(made[2], batch[2, :, 2:4, 1:3])


def test_rows_of_a_device_are_not_copied_here():
    with pytest.raises(Unsuited, match="on the processor"):
        put(torch.empty(2, 3, device="meta"), torch.tensor([0]), torch.empty(1, 3, device="meta"))
