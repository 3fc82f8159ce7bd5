"""Pixels of images copied from where Pillow has them, against those that Pillow gives away."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from flatout.native import native, pixels
from flatout.native.pixels import pixels_of, write_pixels
from flatout.native.recycled_memory import RecycledMemory
from flatout.pipeline.compile.sample_form import SampleForm, pack, put
from flatout.pipeline.read.in_place import room_for, written


@pytest.fixture(params=["exported", "given away"], autouse=True)
def way(request, monkeypatch):
    if request.param == "given away":
        monkeypatch.setattr(pixels, "_copy", lambda: None)
    elif not native.available():
        pytest.skip("flatout was installed without a C compiler")
    return request.param


def image_of(width, height, mode="RGB", seed=0):
    channels = len(Image.new(mode, (1, 1)).getbands())
    some = np.random.default_rng(seed).integers(0, 256, width * height * channels, dtype=np.uint8)
    return Image.frombytes(mode, (width, height), some.tobytes())


def as_file(image, form="JPEG"):
    file = io.BytesIO()
    image.save(file, form)
    return Image.open(io.BytesIO(file.getvalue()))


IMAGES = {
    "colored": lambda: image_of(37, 23),
    "gray": lambda: image_of(37, 23, "L"),
    "one pixel": lambda: image_of(1, 1),
    "five pixels": lambda: image_of(5, 1),
    "hues": lambda: image_of(64, 33, "HSV"),
    "large": lambda: image_of(800, 600),
    "in several pieces": lambda: image_of(2500, 2000),
    "cut out": lambda: image_of(50, 40).crop((3, 5, 44, 39)),
    "of a file, not read yet": lambda: as_file(image_of(37, 23)),
    "gray, of a file": lambda: as_file(image_of(37, 23, "L"), "PNG"),
    "over an array": lambda: Image.fromarray(np.arange(35, dtype=np.uint8).reshape(5, 7)),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.slow
def test_pixels_are_those_that_pillow_gives_away(name):
    image = IMAGES[name]()
    expected = np.asarray(IMAGES[name]())
    around = torch.full((expected.size + 16,), 77, dtype=torch.uint8)
    write_pixels(image, around[8:-8])
    assert np.array_equal(around[8:-8].numpy().reshape(expected.shape), expected)
    assert around[:8].tolist() == around[-8:].tolist() == [77] * 8  # nothing beyond


def test_compiled_code_copies_what_lies_in_one_piece(way):
    copy = pixels._copy()
    out = torch.empty(6, dtype=torch.uint8)
    assert (copy is not None and copy(image_of(2, 1), 2, 3, out)) == (way == "exported")
    if copy is not None:
        assert not copy(image_of(2500, 2000), 2500 * 2000, 3, torch.empty(15_000_000, dtype=torch.uint8))
        assert not copy(image_of(2, 1), 3, 3, out)
        assert not copy(image_of(2, 1), 2, 1, out)
        assert not copy(image_of(2, 1, "RGBA"), 2, 1, out)


@pytest.mark.parametrize("room", [torch.empty(5, dtype=torch.uint8), torch.empty(12, dtype=torch.uint8)[::2]])
def test_too_little_room_is_an_error(room):
    with pytest.raises(ValueError, match="no place for 2 pixels"):
        write_pixels(image_of(2, 1), room)


def test_a_file_that_ends_early_is_an_error_as_in_pillow():
    file = io.BytesIO()
    image_of(90, 90).save(file, "JPEG")
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    with pytest.raises(OSError, match="truncated"):
        pixels_of([Image.open(io.BytesIO(file.getvalue()[:900]))], RecycledMemory())


def test_images_of_two_sizes_are_no_rows():
    assert pixels_of([image_of(3, 4), image_of(4, 3)], RecycledMemory()) is None


# -- one by one -------------------------------------------------------------------------------------------------------

RGB = SampleForm("image", "RGB")


def read_of(values):
    return [(value, number) for number, value in enumerate(values)]


def test_values_are_written_to_their_rows_one_by_one():
    images = [image_of(7, 5, seed=seed) for seed in range(4)]
    rows = room_for(RGB, images[0], 4, RecycledMemory())
    samples, unfit = written(RGB, read_of(images), rows)
    assert (samples, unfit) == ([0, 1, 2, 3], [])
    assert torch.equal(rows, pack(images)[1])


@pytest.mark.parametrize("other", [image_of(5, 7), image_of(7, 5, "L"), torch.zeros(5, 7, 3, dtype=torch.uint8)])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_where_one_is_of_another_kind_all_come_back_as_they_were(other, place):
    values = [image_of(7, 5, seed=seed) for seed in range(4)]
    values[place] = other
    rows = room_for(RGB, image_of(7, 5), 4, RecycledMemory())
    samples, unfit = written(RGB, read_of(values), rows)
    assert samples == []
    assert [number for _, number in unfit] == [0, 1, 2, 3]
    assert all(
        np.array_equal(np.asarray(value), np.asarray(was)) for (value, _), was in zip(unfit, values, strict=True)
    )


def test_values_that_are_no_images_have_no_room():
    assert room_for(SampleForm("tensor"), torch.zeros(3), 4, RecycledMemory()) is None


@pytest.mark.parametrize("value", [torch.arange(6.0).view(2, 3), np.arange(6, dtype=np.int16).reshape(2, 3)])
def test_other_values_are_put_as_they_would_be_packed(value):
    form, packed = pack([value])
    row = torch.empty_like(packed[0])
    assert put(form, value, row)
    assert torch.equal(row, packed[0])
    assert not put(form, value[:1], row)
    assert not put(SampleForm("image", "L"), value, row)
    assert not put(form, value, row.double())
