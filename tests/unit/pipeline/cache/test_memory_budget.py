"""Memory that a compiled loader really takes, in a process of its own: never more than was allowed."""

import json
import subprocess
import sys

import pytest

MIB = 1 << 20
WHOLE = 96 * MIB
"""What all samples of the script take."""

BESIDE = 24 * MIB
"""For batches under way (2 MiB each), code that is imported late and what an allocator keeps back."""

SCRIPT = """
import json, mmap, random, resource, sys
import torch
from torch.utils.data import DataLoader, Dataset
import flatout

kind, max_bytes, free = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])

class Rows(Dataset):
    transform = None

    def __len__(self):
        return 1536

    def __getitem__(self, index):
        length = 16384 if kind != "ragged" else 16128 + index % 512
        row = torch.arange(index, index + length, dtype=torch.float32)
        return row if self.transform is None else self.transform(row)

def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

def taken():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

data = Rows()
if kind == "random":
    data.transform = lambda row: row.roll(random.randrange(9))
options = {"batch_size": 32, "shuffle": True, "collate_fn": padded if kind == "ragged" else None}
plain = DataLoader(data, **options)

def passes(loader, watch):
    random.seed(0)
    torch.manual_seed(0)
    sums = []
    for _ in range(3):
        for batch in loader:
            sums.append(batch.double().sum().item())
            watch()
    return sums

expected = passes(plain, lambda: None)
before, most = taken(), 0
if free is not None:
    untouched = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # CUDA builds of torch have such
    used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, used + free))

def watch():
    global most
    most = max(most, taken() - before)

compiled = flatout.compile_loader(plain, max_bytes=max_bytes)
same = passes(compiled, watch) == expected
print(json.dumps({"same": same, "most": most, "told": str(compiled.explain())}))
"""


def run(kind, max_bytes=None, free=None):
    words = [sys.executable, "-c", SCRIPT, kind, json.dumps(max_bytes), json.dumps(free)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "ragged", "random"])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.5])
@pytest.mark.few(1)
def test_no_more_is_taken_than_was_allowed(kind, share):
    found = run(kind, max_bytes=int(share * WHOLE))
    assert found["same"], found["told"]
    assert found["most"] <= share * WHOLE + BESIDE, found["told"]


@pytest.mark.slow
def test_it_is_taken_where_it_is_allowed():
    assert run("whole", max_bytes=2 * WHOLE)["most"] > 0.8 * WHOLE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "ragged", "random"])
@pytest.mark.few(1)
def test_a_process_with_little_memory_left_trains_on(kind):
    found = run(kind, free=64 * MIB)
    assert found["same"], found["told"]
    assert found["most"] <= 64 * MIB
