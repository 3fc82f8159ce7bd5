"""Workers of a loader that write to a file of the training, or look at one, find what was flushed or saved before.

Modules: flatout.fixes.checkpoint.shared_places.
"""

import contextlib
import mmap
import multiprocessing
import os
import time
from types import SimpleNamespace

import pytest
import torch
from tests.unit.fixes.training import under

from flatout.fixes.checkpoint import shared_places
from flatout.fixes.checkpoint.shared_places import PlacesOfParent, SharedPlaces
from flatout.fixes.checkpoint.snapshot import Snapshot
from flatout.fixes.text_files import write_behind

HEAD = """
import json, logging, os, torch
from torch.utils.data import DataLoader, Dataset

x = torch.ones(1, requires_grad=True)
seen = []
"""
SCRIPTS = {
    "a log that both write to": """
log, handler = logging.Logger("training"), logging.FileHandler("log.txt")
log.addHandler(handler)

class Items(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, at):
        log.warning("item %d", at)
        return torch.ones(1)

loader = DataLoader(Items(), batch_size=2, num_workers=1, persistent_workers=True)
for epoch in range(3):
    log.warning("epoch %d", epoch)
    for _ in loader:
        x.sum().backward()
handler.close()
with open("log.txt") as file:
    seen.append(file.read())
""",
    "a file that says how far the training is": """
class Items(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, at):
        with open("stage.json") as file:
            return json.load(file)["epoch"]

loader = DataLoader(Items(), num_workers=1, persistent_workers=True)
for epoch in range(7):
    with open("stage.json", "w") as file:
        json.dump({"epoch": epoch}, file)
    seen += [int(stage) for stage in loader]
    x.sum().backward()
""",
    "a file that is asked for its size": """
class Items(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, at):
        return os.path.getsize("rows.csv") if os.path.exists("rows.csv") else 0

loader = DataLoader(Items(), num_workers=2, persistent_workers=True)
file = open("rows.csv", "w")
for epoch in range(5):
    file.write("row")
    file.flush()
    seen += [int(size) for size in loader]
    x.sum().backward()
file.close()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_workers_find_what_was_flushed_before_they_were_asked(text, workdir, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 0.2)
    results = []
    for fix in (contextlib.nullcontext(), under("buffered-files")):
        folder = workdir / str(len(results))
        folder.mkdir()
        monkeypatch.chdir(folder)
        with fix as process:
            names = {"__name__": "training"}
            exec(compile(HEAD + text, str(folder / "train.py"), "exec"), names)
            results.append(names.pop("seen"))
            names.clear()
            if process is not None:
                assert not process.site.failure
                assert process.site.hits["written later"] > 0
    assert results[0] == results[1]


CHECKPOINT = """
class Items(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, at):
        return torch.load("latest.pt")["epoch"]

weights = torch.ones(300, 300)
loader = DataLoader(Items(), num_workers=1, persistent_workers=True)
for epoch in range(5):
    torch.save({"epoch": epoch, "weights": weights}, "latest.pt")
    seen += [int(number) for number in loader]
    x.sum().backward()
"""


@pytest.mark.slow
def test_workers_load_the_checkpoint_that_was_saved_before_they_were_asked(workdir, monkeypatch):
    write = Snapshot.write
    monkeypatch.setattr(Snapshot, "write", lambda *args: time.sleep(0.1) or write(*args))
    with under("async-checkpoint") as process:
        names = {"__name__": "training"}
        exec(compile(HEAD + CHECKPOINT, str(workdir / "train.py"), "exec"), names)
        seen = names.pop("seen")
        names.clear()
        assert process.site.hits["torch.save"] > 0
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "ends"), [("fork", False), ("spawn", True)])
def test_a_worker_that_is_not_forked_ends_the_waiting(way, ends, monkeypatch):
    worker = multiprocessing.get_context(way).Process(target=torch.utils.data._utils.worker._worker_loop)
    monkeypatch.setattr(
        type(worker), "_Popen", staticmethod(lambda process: SimpleNamespace(sentinel=0, poll=lambda: 0))
    )
    with under("buffered-files") as process:
        worker.start()
        assert bool(process.site.failure) is ends


def test_a_file_is_noted_and_who_waits_for_it_is_told_of(monkeypatch):
    places = SharedPlaces()
    assert not places and "1:2" not in places
    assert places.add("1:2") and places.add("1:2") and places.add("3:4")
    assert places and "1:2" in places and "2:1" not in places
    assert not places.remove("1:2")
    assert "1:2" not in places and "3:4" in places
    monkeypatch.setattr(shared_places, "_PATIENCE_S", 0.05)
    places.wait("1:2")
    assert not places.remove("3:4") and not places
    assert places.add("3:4")
    places.wait("3:4")
    assert places.remove("3:4") and not places.remove("3:4")


def test_bytes_of_two_files_side_by_side_are_no_file():
    places = SharedPlaces()
    places.add("1:2")
    assert "1:2" in places
    assert "2:0" not in places  # the number of one, and that nobody waits for it


def test_there_is_room_for_many_files_and_not_for_more():
    places, number = SharedPlaces(), 0
    while places.add(f"7:{number + 1}"):
        number += 1
    assert 100 < number < mmap.PAGESIZE
    assert not places.remove("7:1")
    assert places.add("8:1") and not places.add("9:1")


def test_a_forked_process_sees_what_is_noted_and_notes_nothing():
    places = SharedPlaces()
    known = PlacesOfParent(places)
    assert not known and known == {}
    places.add("1:2")
    assert known and known.get("1:2") is None
    process = os.fork()
    if process == 0:
        places.wait("9:9")
        os._exit(0 if "1:2" in places and known else 3)
    assert os.waitpid(process, 0)[1] == 0
    assert not places.remove("1:2")
