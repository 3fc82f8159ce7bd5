"""Causes in making batches and in the step as a whole: many small parts, small micro-batches, workers without work."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find

CHAINED = """
import numpy as np
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
rng = np.random.default_rng(0)

def shift(a): return np.stack([np.roll(row, 2) for row in a[:12]] + [row for row in a[12:]])
def blur(a): return np.stack([np.roll(row, 1) for row in a[:12]] + [row for row in a[12:]])
def sort(a): return np.stack([np.roll(row, 3) for row in a[:12]] + [row for row in a[12:]])
def grow(a): return np.stack([np.roll(row, 4) for row in a[:12]] + [row for row in a[12:]])
def trim(a): return np.stack([np.roll(row, 5) for row in a[:12]] + [row for row in a[12:]])

def augment(a):
    a = shift(a)  # PART
    a = blur(a)  # PART
    a = sort(a)  # PART
    a = grow(a)  # PART
    return trim(a)  # PART

class Patches(torch.utils.data.Dataset):
    data = rng.random((256, 32, 32), dtype=np.float32)
    def __len__(self):
        return 256
    def __getitem__(self, index):
        return torch.from_numpy({made}).flatten(), index % 5

model = torch.nn.Linear(1024, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Patches(), batch_size=8)
while True:
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

SPLIT = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(640, 32), torch.randint(0, 5, (640,)))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for x, y in torch.utils.data.DataLoader(data, batch_size=64):
        optimizer.zero_grad()
        for part in torch.arange(64).split({rows}):  # LOOP
            (nn.functional.cross_entropy(model(x[part]), y[part]) * len(part) / 64).backward()
        optimizer.step()
"""

SHARDS = """
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
torch.set_num_threads(1)

class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for shard in range({shards})[info.id :: info.num_workers]:
            for row in range(400 // {shards}):
                yield torch.linalg.svdvals(torch.full((24, 24), float(row)).tril())

model = torch.nn.Linear(24, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Stream(), batch_size=8, num_workers=2, persistent_workers=True)  # MADE
if __name__ == "__main__":
    while True:
        for x in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def diagnosed(flatout, script, steps=40):
    flatout.write(script)
    ended = flatout.diagnose("train.py", steps=steps)
    assert ended.code == 0, ended.err
    return ended.run, {found.code: found for found in find(ended.run, account(ended.run))}


@pytest.mark.full
def test_a_function_of_many_small_parts_is_named_as_a_whole(flatout):
    script = CHAINED.replace("{made}", "augment(self.data[index])")
    _, codes = diagnosed(flatout, script)
    found = codes["IN003"]
    assert script.splitlines()[found.location.line - 1].endswith("# PART")
    assert found.location.function == "augment"
    assert "5 parts, none of which dominates" in found.message
    assert "IN003" not in diagnosed(flatout, CHAINED.replace("{made}", "self.data[index]"))[1]


@pytest.mark.full
@pytest.mark.parametrize(("rows", "found"), [(2, True), (64, False)])
def test_micro_batches_that_are_too_small_are_found_at_their_loop(flatout, rows, found):
    script = SPLIT.replace("{rows}", str(rows))
    run, codes = diagnosed(flatout, script)
    assert ("ME006" in codes) is found
    assert (run.causes.micro_batches is not None) is found
    if found:
        assert script.splitlines()[codes["ME006"].location.line - 1].endswith("# LOOP")
        assert (run.causes.micro_batches.count, run.causes.micro_batches.rows) == (32, 2)


@pytest.mark.full
@pytest.mark.parametrize(("shards", "idle"), [(1, 1), (2, 0)])
def test_the_time_of_each_worker_tells_those_without_a_shard(flatout, shards, idle):
    run, codes = diagnosed(flatout, SHARDS.replace("{shards}", str(shards)))
    busy = [worker.busy_s for worker in run.workers]
    assert len(busy) == 2
    assert sum(each < 0.1 * max(busy) for each in busy) == idle
    if "IN019" in codes:  # depends on the cores there are
        assert idle
        assert SHARDS.splitlines()[codes["IN019"].location.line - 1].endswith("# MADE")
