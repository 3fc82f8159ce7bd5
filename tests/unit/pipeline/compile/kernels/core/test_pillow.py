"""Pillow on batches of pixels: each image alone, or all as one tall one."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.pillow import converted, for_each, mode_of, one_by_one

RGB = torch.randint(0, 256, (3, 4, 5, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_mode_is_that_of_the_form():
    assert (mode_of(RGB), mode_of(RGB[..., 0])) == ("RGB", "L")


@pytest.mark.parametrize(
    "batch", [RGB.float(), RGB[0, 0], RGB[None], torch.empty(1, 2, 2, dtype=torch.uint8, device="meta")]
)
def test_what_holds_no_images_is_refused(batch):
    with pytest.raises(Unsuited, match="not a batch of images"):
        mode_of(batch)


@pytest.mark.parametrize("batch", [RGB, RGB[..., 0], RGB.permute(0, 2, 1, 3)], ids=["RGB", "L", "turned"])
def test_each_image_is_changed_with_its_number(batch):
    out = torch.empty_like(batch, memory_format=torch.contiguous_format)
    one_by_one(batch, out, lambda image, number: ImageOps.invert(image) if number == 1 else image)
    wanted = batch.clone()
    wanted[1] = 255 - wanted[1]
    assert torch.equal(out, wanted)


@pytest.mark.parametrize(("num_bytes", "several"), [(100, False), (10**6, True)])
def test_several_threads_are_used_where_each_has_enough_to_do(num_bytes, several, two_threads):
    found = {}
    for_each(lambda number: found.update({number: threading.get_ident()}), 8, num_bytes)
    assert sorted(found) == list(range(8))
    assert several or set(found.values()) == {threading.get_ident()}


def test_all_rows_are_converted_as_each_is():
    gray = converted(RGB, "RGB", "L")
    for row, values in zip(gray, RGB, strict=True):
        assert np.array_equal(row.numpy(), np.asarray(Image.fromarray(values.numpy()).convert("L")))
    assert torch.equal(converted(gray, "L", "RGB"), gray[..., None].expand(*gray.shape, 3))
    assert converted(RGB[:0], "RGB", "L").shape == (0, 4, 5)
