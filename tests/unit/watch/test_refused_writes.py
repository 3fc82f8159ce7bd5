"""A data set that writes files while it is read is left as it is, and the reason says so, and which file."""

import errno
import os

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import flatout
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.refused_writes import in_words, refused_write

CLOSED = OSError(errno.EROFS, os.strerror(errno.EROFS), "cache/7.npy")


class Cached(Dataset):
    """Keeps each decoded row in a file beside the others."""

    def __init__(self, folder, wrapped=False):
        self.folder, self.wrapped = str(folder), wrapped

    def __len__(self):
        return 12

    def __getitem__(self, index):
        place = os.path.join(self.folder, f"{index}.npy")
        if not os.path.exists(place):
            try:
                np.save(place, np.arange(4.0) + index)
            except OSError as error:
                if self.wrapped:
                    raise RuntimeError("cache unusable") from error
                raise
        return torch.from_numpy(np.load(place))


class Careful(Cached):
    """Goes on where a file cannot be written."""

    def __getitem__(self, index):
        try:
            with open(os.path.join(self.folder, "seen.txt"), "a") as seen:
                seen.write(f"{index}\n")
        except OSError:
            pass
        return torch.tensor(index)


class Importing(Dataset):
    """Imports a module when it is first read."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        import met_late

        return torch.tensor(met_late.VALUE * index)


class Collating:
    """Notes each batch that it makes in a file."""

    def __init__(self, place):
        self.place = str(place)

    def __call__(self, rows):
        with open(self.place, "a") as log:
            log.write(f"{len(rows)}\n")
        return torch.stack(rows)


def refuses():
    """Return whether the kernel lets a copy of the process have read-only file systems."""
    return bool(ask_a_copy(lambda: os.access(".", os.W_OK) or os.access(os.path.expanduser("~"), os.W_OK)).value)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_reason_names_the_file(wrapped, tmp_path):
    if refuses():
        pytest.skip("the kernel allows no read-only copy here")
    loader = flatout.compile_loader(DataLoader(Cached(tmp_path, wrapped), batch_size=3))
    batches = [list(loader) for _ in range(2)]
    assert flatout.explain(loader) == (f"left as it is: Cached writes files while it is read: {tmp_path / '0.npy'}")
    assert torch.equal(torch.cat(batches[0]), torch.cat(batches[1]))
    assert len(os.listdir(tmp_path)) == 12  # all its own


def test_one_that_catches_its_own_error_is_seen(tmp_path):
    loader = flatout.compile_loader(DataLoader(Careful(tmp_path), batch_size=3))
    for _ in range(3):
        list(loader)
    assert f"Careful writes files while it is read: {tmp_path / 'seen.txt'}" in flatout.explain(loader)
    assert len((tmp_path / "seen.txt").read_text().split()) == 36


def test_compiled_code_that_is_kept_beside_a_module_is_no_result(tmp_path, monkeypatch):
    (tmp_path / "met_late.py").write_text("VALUE = 3.0")
    monkeypatch.syspath_prepend(tmp_path)
    loader = flatout.compile_loader(DataLoader(Importing(), batch_size=3))
    batches = [torch.cat(list(loader)) for _ in range(3)]
    assert "kept" in flatout.explain(loader)
    assert batches[0].tolist() == [3.0 * index for index in range(12)]


def test_a_collate_function_that_writes_is_named_so(tmp_path):
    if refuses():
        pytest.skip("the kernel allows no read-only copy here")
    rows = [torch.tensor([float(row)]) for row in range(8)]
    loader = flatout.compile_loader(DataLoader(rows, batch_size=4, collate_fn=Collating(tmp_path / "log.txt")))
    list(loader)
    assert (tmp_path / "log.txt").read_text() == "4\n4\n"
    assert f"writes files while it is read: {tmp_path / 'log.txt'}" in flatout.explain(loader)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CLOSED, "writes files while it is read: cache/7.npy"),
        (OSError(errno.EROFS, "x"), "writes files while it is read"),
        (RuntimeError("unable to open file: name = 'a.h5', error message = 'Read-only file system'"), ": a.h5"),
        (RuntimeError("Read-only file system"), "writes files while it is read"),
    ],
)
def test_errors_of_every_library_are_understood(error, said):
    assert refused_write(error).endswith(said)
    assert in_words(error).startswith("writes files while it is read")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), ValueError("file system"), KeyError("name")])
def test_other_errors_are_told_as_they_are(error):
    assert refused_write(error) == ""
    assert in_words(error) == f"raised {type(error).__name__}: {error}"
    assert in_words(error, message=False) == f"raised {type(error).__name__}"
