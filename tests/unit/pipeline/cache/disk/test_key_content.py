"""What is told of tensors, arrays and images: every bit, and how they lie."""

import numpy as np
import pytest
import torch
from PIL import Image

from flatout.pipeline.cache.disk import key_content
from flatout.pipeline.cache.disk.key_content import told_content
from flatout.pipeline.cache.disk.key_files import Allowance, Files, KeyLimits, Untold


def told(thing, **limits):
    allowance = Allowance(KeyLimits(**limits))
    return told_content(thing, lambda value: repr(value).encode(), Files(allowance), allowance)


def image(value=0, **info):
    made = Image.new("RGB", (2, 2), (value, 0, 0))
    made.info.update(info)
    return made


def palette(color):
    made = Image.new("P", (2, 2))
    made.putpalette([color, 0, 0])
    return made


def with_attribute(value):
    made = torch.ones(2)
    made.note = value
    return made


DIFFERENT = [
    (torch.ones(3), torch.tensor([1.0, 1.0, 2.0])),
    (torch.ones(3), torch.ones(3, dtype=torch.float64)),
    (torch.ones(2, 3), torch.ones(3, 2)),
    (torch.ones(2, 3), torch.ones(3, 2).t()),
    (torch.tensor(0.0), torch.tensor(-0.0)),
    (torch.ones(1), torch.ones(1, requires_grad=True)),
    (with_attribute(1), with_attribute(2)),
    (np.ones(3), np.array([1.0, 1.0, 2.0])),
    (np.ones(3), np.ones(3, dtype=np.float32)),
    (np.array(["a"]), np.array(["b"])),
    (np.array([[1], 2], dtype=object), np.array([[1], 3], dtype=object)),
    (np.float32(1), np.float32(2)),
    (np.dtype("f4"), np.dtype("f8")),
    (image(0), image(1)),
    (image(0), image(0, note="a")),
    (image().convert("L"), image()),
    (palette(1), palette(2)),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_difference_shows(one, other):
    assert told(one) != told(other)


@pytest.mark.parametrize("thing", [one for one, _ in DIFFERENT])
def test_the_same_again_is_the_same(thing):
    assert told(thing) == told(thing)
    if isinstance(thing, np.ndarray):
        assert told(thing.copy(order="K")) == told(thing)


@pytest.mark.parametrize("thing", [3, "text", [1], None, object()])
def test_anything_else_is_somebody_elses(thing):
    assert told(thing) is None


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.empty(2, device="meta")])
def test_a_tensor_whose_bits_lie_elsewhere_cannot_be_told(tensor):
    with pytest.raises(Untold, match="a tensor that is"):
        told(tensor)


def test_more_than_is_allowed_is_not_read():
    for thing in (torch.ones(3), np.ones(3)):
        with pytest.raises(Untold, match="more than 8 bytes of arrays"):
            told(thing, num_bytes=8)


def test_a_mapped_array_is_told_by_its_file_and_where_in_it(tmp_path):
    file = tmp_path / "rows.npy"
    np.save(file, np.arange(64))
    mapped = np.load(file, mmap_mode="r")
    assert told(mapped) == told(np.load(file, mmap_mode="r"))
    assert told(mapped[1:]) != told(mapped[:-1])
    assert told(mapped[8:16]) != told(mapped[16:24])
    with pytest.raises(Untold, match="memory mapped with mode 'r\\+'"):
        told(np.load(file, mmap_mode="r+"))


def test_an_image_that_is_not_read_yet_stays_so(tmp_path):
    image(7).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as opened:
        assert told(opened) is not None
        assert opened.fp is not None
    with (tmp_path / "a.png").open("rb") as file, Image.open(file) as opened:
        opened.filename = ""
        with pytest.raises(Untold, match="still to be read from an open file"):
            told(opened)


def test_many_blocks_are_hashed_on_several_threads_to_the_same(monkeypatch):
    thing = np.arange(1000)
    monkeypatch.setattr(key_content, "_BLOCK", 64)
    several = told(thing)
    monkeypatch.setattr(key_content, "usable_cores", lambda: 1)
    assert told(thing) == several
    other = thing.copy()
    other[-1] = 0
    assert told(other) != several
