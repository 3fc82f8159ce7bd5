"""Ranks of one machine keep one copy of what they read: each finds what others kept, and none takes a stranger's."""

import json
import os
import subprocess
import sys

import pytest
import torch

from flatout.pipeline.cache import memory_budget, ranks
from flatout.pipeline.cache.filled_rows import FilledRows
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.ranks import SharedBlock, local_ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory without a name is of Linux")

RANK = """
import json, os, sys, threading, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
import flatout

RANK, FOLDER = int(os.environ["RANK"]), Path(sys.argv[1])
calls = []  # of the data set, seen from outside: one that counts itself is left as it is


def profile(frame, event, arg):
    if event == "call" and frame.f_code is Data.__getitem__.__code__:
        calls.append(1)


class Data(Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        EXTRA
        return torch.tensor([self.values[index]] * 50).cumsum(0), self.values[index]


def together(name):
    (FOLDER / f"{name}-{RANK}").touch()
    until = time.monotonic() + 60
    while not (FOLDER / f"{name}-{1 - RANK}").exists():
        assert time.monotonic() < until
        time.sleep(0.005)


def walk(loader, epoch):
    loader.sampler.set_epoch(epoch)
    return [[part.clone() for part in batch] for batch in loader]


def make():
    data = Data(list(range(RANGE)))
    sampler = DistributedSampler(data, num_replicas=2, rank=RANK, seed=3)
    return DataLoader(data, batch_size=8, sampler=sampler)


plain, compiled = make(), flatout.compile_loader(make())
asked, same = [], True
for epoch in range(4):
    together(f"epoch{epoch}")
    wanted = walk(plain, epoch)
    sys.setprofile(profile)
    threading.setprofile(profile)
    calls.clear()
    found = walk(compiled, epoch)
    asked.append(len(calls))
    sys.setprofile(None)
    same &= len(wanted) == len(found)
    same &= all(torch.equal(a, b) for one, two in zip(wanted, found) for a, b in zip(one, two))
    together(f"end{epoch}")
maps = Path("/proc/self/maps").read_text()
blocks = sorted({line.split()[4] for line in maps.splitlines() if "memfd:flatout" in line})
print(json.dumps({"asked": asked, "same": same, "blocks": blocks, "explain": compiled.explain()}))
"""


def run_ranks(folder, extra="", values="300"):
    script = folder / "ranks.py"
    script.write_text(RANK.replace("EXTRA", extra or "pass").replace("RANGE", values))
    environment = os.environ | {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "MASTER_PORT": str(os.getpid())}
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    return [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in running]


@pytest.mark.full
def test_each_rank_reads_its_part_once_and_finds_the_others_there(tmp_path):
    found = run_ranks(tmp_path)
    assert all(each["same"] for each in found)
    assert len(found[0]["blocks"]) == 1 and found[0]["blocks"] == found[1]["blocks"]
    for each in found:
        first, *later = each["asked"]
        assert first >= 150
        assert sum(later) < 60  # proofs; alone, a rank would have to read 75 more in the second epoch


@pytest.mark.slow
def test_ranks_whose_data_differ_keep_apart(tmp_path):
    found = run_ranks(tmp_path, values="300 * RANK, 300 * RANK + 300")
    assert all(each["same"] for each in found)
    assert not set(found[0]["blocks"]) & set(found[1]["blocks"])


@pytest.mark.full
def test_samples_that_depend_on_the_rank_unseen_are_found_out_before_one_is_taken(tmp_path):
    found = run_ranks(tmp_path, extra="index = (index + 7 * int(os.environ['RANK'])) % 300")
    assert all(each["same"] for each in found)


def test_a_block_is_the_same_memory_for_all_and_gone_with_them():
    first, second = SharedBlock("a", 4096), SharedBlock("a", 4096)
    assert (first.joined, second.joined) == (False, True)
    first.memory[7] = 9
    assert second.memory[7] == 9
    first.close()
    assert second.memory[7] == 9
    assert not SharedBlock("a", 4096).joined


def test_other_names_and_sizes_are_other_blocks():
    one, other, longer = SharedBlock("b", 4096), SharedBlock("c", 4096), SharedBlock("b", 8192)
    one.memory[0] = 1
    assert not (other.joined or longer.joined or other.memory[0] or longer.memory[0])


def test_what_is_left_of_a_block_whose_maker_is_gone_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks.tempfile, "gettempdir", lambda: str(tmp_path))
    SharedBlock("d", 4096).close()
    block = SharedBlock("d", 4096)
    (place,) = tmp_path.iterdir()
    for left in (b"999999999 3", b"rubbish", f"{os.getpid()} 0".encode(), b""):
        place.write_bytes(left)
        assert not SharedBlock("d", 4096).joined
    assert len(block.memory) == 4096


def test_a_file_that_is_no_file_of_ours_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks.tempfile, "gettempdir", lambda: str(tmp_path))
    SharedBlock("e", 4096)
    (place,) = tmp_path.iterdir()
    place.unlink()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    place.symlink_to(precious)
    with pytest.raises(OSError):
        SharedBlock("e", 4096)
    assert precious.read_text() == "mine"


def test_what_others_wrote_counts_once_it_is_trusted():
    flags = torch.zeros(10, dtype=torch.uint8)
    mine, theirs = FilledRows(10, flags), FilledRows(10, flags)
    theirs.add(torch.tensor([3, 4]))
    mine.add(torch.tensor([1]))
    assert mine.number == 1 and len(mine.lacking(torch.tensor([3]))) == 1
    assert set(mine.some(8, 1)) == {3, 4}  # what is to be held against the data set
    mine.trust()
    assert mine.number == 3 and not len(mine.lacking(torch.tensor([1, 3, 4])))


def test_trust_needs_samples_of_others():
    flags = torch.zeros(10, dtype=torch.uint8)
    mine = FilledRows(10, flags)
    mine.add(torch.tensor([1]))
    assert mine.some(8, 1) == [1] * 8
    mine.trust()
    FilledRows(10, flags).add(torch.tensor([5]))
    assert mine.doubted and mine.number == 1


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"])
def test_ranks_of_a_machine_have_its_memory_together(monkeypatch, name):
    monkeypatch.setattr(memory_budget, "available_bytes", lambda: 1000)
    alone = MemoryBudget().left
    monkeypatch.setenv(name, "4")
    assert local_ranks() == 4
    assert MemoryBudget().left == alone // 4
