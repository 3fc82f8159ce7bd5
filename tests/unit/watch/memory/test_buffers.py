"""Where arrays, tensors and alike have their numbers: every change of a number lies in the ranges that are told."""

import array
import ctypes
import mmap

import numpy as np
import pytest
import torch
from PIL import Image

from flatout.watch.memory.buffers import holds_memory, memory_of


def content(ranges):
    return [ctypes.string_at(start, length) for start, length in ranges]


def assigned(place, value):
    return lambda thing: thing.__setitem__(place, value)


CHANGES = {
    "a tensor": (lambda: torch.arange(6.0), assigned(5, 9.0)),
    "a view": (lambda: torch.arange(12.0).reshape(3, 4).t()[1:], assigned((2, 2), 9.0)),
    "a tensor's place": (lambda: torch.arange(6.0), lambda thing: thing.set_(torch.arange(6.0))),
    "a tensor's shape": (lambda: torch.arange(6.0), lambda thing: thing.resize_(2, 3)),
    "an array": (lambda: np.arange(6), assigned(0, 9)),
    "an array backwards": (lambda: np.arange(6)[::-2], assigned(2, 9)),
    "an array's shape": (lambda: np.arange(6), lambda thing: setattr(thing, "shape", (2, 3))),
    "a standard array": (lambda: array.array("i", [1, 2, 3]), assigned(2, 9)),
    "a longer one": (lambda: array.array("i", [1, 2, 3]), lambda thing: thing.append(4)),
    "bytes": (lambda: bytearray(b"abc"), assigned(0, 7)),
    "no bytes": (bytearray, lambda thing: thing.extend(b"abc")),
    "a number of C's": (lambda: ctypes.c_int(3), lambda thing: setattr(thing, "value", 4)),
    "several": (lambda: (ctypes.c_int * 3)(), assigned(2, 4)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_shows_in_the_ranges(kind):
    make, change = CHANGES[kind]
    thing = make()
    assert holds_memory(thing)
    ranges = memory_of(thing).ranges
    before = content(ranges)
    assert content(ranges) == before
    change(thing)
    assert content(ranges) != before


def test_other_rows_of_the_same_memory_are_not_told():
    whole = torch.arange(8.0)
    ranges = memory_of(whole[:4]).ranges
    before = content(ranges[-1:])
    whole[4] = 9.0
    assert content(ranges[-1:]) == before


def test_objects_in_an_array_are_told_one_by_one():
    held = [["a"], ["b"]]
    values = np.empty(2, dtype=object)
    values[:] = held
    assert memory_of(values).inner[0] is held[0]


@pytest.mark.parametrize("thing", [1, "a", [1], {}, None, object()])
def test_other_things_hold_none(thing):
    assert not holds_memory(thing)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.eye(3).to_sparse(), "a tensor that is torch.sparse_coo on cpu"),
        (torch.empty(3, device="meta"), "a tensor that is torch.strided on meta"),
    ],
)
def test_a_tensor_whose_numbers_lie_elsewhere_may_change_unseen(tensor, said):
    assert memory_of(tensor).unwatched == said


def test_an_array_of_a_file_is_told_by_its_file_unless_it_may_be_written(tmp_path):
    file = tmp_path / "rows.npy"
    np.save(file, np.arange(64))
    read = memory_of(np.load(file, mmap_mode="r")[3:])
    assert (read.file, read.unwatched) == (str(file), "")
    for mode in ("r+", "c"):
        written = memory_of(np.load(file, mmap_mode=mode))
        assert (written.file, written.unwatched) == (
            "",
            f"an array of a mapped file that may be written ({file})",
        )


def test_a_map_that_may_be_written_is_unwatched(tmp_path):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1234")
    with file.open("r+b") as opened:
        with mmap.mmap(opened.fileno(), 0) as mapped:
            assert memory_of(mapped).unwatched == "a map of memory or of a file that may be written"
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert memory_of(mapped).unwatched == ""


def test_of_an_image_the_attributes_are_told_and_the_pixels_are_not():
    image = Image.new("L", (2, 2))
    image.info["note"] = "a"
    found = memory_of(image)
    assert found.opaque
    assert any(inner is image.info for inner in found.inner)


def test_a_view_of_bytes_refers_to_what_it_is_of():
    held = bytearray(b"abc")
    assert memory_of(memoryview(held)).inner[0] is held
