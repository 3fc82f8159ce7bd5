"""What samples ask of files, beside opening them, is known: batches after a change are the plain loader's."""

import contextlib
import glob
import os
import pathlib
import subprocess

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader

pytestmark = pytest.mark.slow


def from_file_or_default(name):
    try:
        return float(pathlib.Path(name).read_text())
    except OSError:
        return -1.0


ASKED = {
    "whether a file is there": lambda: os.path.exists("changed"),
    "by pathlib": lambda: pathlib.Path("changed").is_file(),
    "how large": lambda: os.path.getsize("number"),
    "how many there are": lambda: len(os.listdir("many")),
    "by a pattern": lambda: len(glob.glob("many/*.txt")),
    "by walking": lambda: sum(len(files) for _, _, files in os.walk("many")),
    "a program": lambda: float(subprocess.run(["cat", "number"], capture_output=True, text=True).stdout),
    "a shell": lambda: float(subprocess.run("head -1 < number", shell=True, capture_output=True, text=True).stdout),
    "what may not be there yet": lambda: from_file_or_default("changed"),
    "whether it may be written": lambda: os.access("changed", os.W_OK),
}


class Asks(Dataset):
    def __init__(self, ask):
        self.ask = ask

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor([float(index), float(self.ask())])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("many").mkdir()
    undo()
    return tmp_path


def change():
    pathlib.Path("changed").write_text("7")
    pathlib.Path("many", "new.txt").write_text("")
    pathlib.Path("number").write_text("33")


def undo():
    for name in ("changed", "many/new.txt"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)
    pathlib.Path("number").write_text("3")


def walked(loader, at):
    """Return all batches of four passes; a file changes after batch `at` of the third."""
    undo()
    found = []
    for number in range(4):
        for place, batch in enumerate(loader):
            found.append(batch)
            if (number, place) == (2, at):
                change()
    return torch.cat(found)


@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.few(5)
def test_batches_after_a_change_are_those_of_the_plain_loader(folder, asked, at):
    compiled = compile_loader(DataLoader(Asks(ASKED[asked]), batch_size=4))
    assert torch.equal(walked(compiled, at), walked(DataLoader(Asks(ASKED[asked]), batch_size=4), at))
    assert "24 samples kept" in compiled.explain()


def test_what_nobody_asks_for_changes_nothing(folder):
    compiled = compile_loader(DataLoader(Asks(ASKED["how large"]), batch_size=4))
    for number in range(5):
        pathlib.Path(f"checkpoint{number}.pt").write_text("weights")
        list(compiled)
    assert "24 batches came from there" in compiled.explain()
