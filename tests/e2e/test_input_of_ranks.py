"""Loaders without workers under `flatout run --nproc-per-node`: the batches of one process, each sample read once.

Modules: flatout.ranks.input.shared_input, flatout.ranks.input.loader_division and flatout.ranks.input.share_exchange.
"""

import ctypes
import mmap
import os
import subprocess
import sys

import pytest

from tests.e2e.support import why_no_private_world

SAMPLES, EPOCHS, RANKS = 48, 3, 2

SCRIPT = """
import ctypes, hashlib, mmap, os, random, sys, time
import numpy, torch
from torch.utils.data import DataLoader, Dataset

file = os.open(sys.argv[1], os.O_RDWR)  # reads are counted in memory that nothing of the training sees
memory = mmap.mmap(file, 0)
COUNTS = ctypes.addressof(ctypes.c_char.from_buffer(memory))
now = ctypes.c_long(0)
NOW = ctypes.addressof(now)
RANK = int(os.environ.get("RANK", "0"))

class Counted(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        epoch = ctypes.c_long.from_address(NOW).value
        place = ((RANK * 3 + epoch) * 2 + self.number) * 48 + index
        ctypes.c_long.from_address(COUNTS + 8 * place).value += 1
        time.sleep(0.01)
        return self.make(index)

class Augmented(Counted):
    number = 0
    def make(self, index):
        image = torch.full((3, 8, 8), float(index)) + torch.randn(3, 8, 8)
        if random.random() < 0.5:
            image = image.flip(-1)
        return image * numpy.random.uniform(0.5, 2), index % 5

class Plain(Counted):
    number = 1
    def make(self, index):
        return torch.full((3, 8, 8), float(index)), index % 5

class Cached(Dataset):
    def __init__(self):
        self.kept = {}
    def __len__(self):
        return 24
    def __getitem__(self, index):
        if index not in self.kept:
            time.sleep(0.01)
            self.kept[index] = torch.rand(2) + index
        return self.kept[index]

class Failing(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        time.sleep(0.005)
        if index == 29:
            raise ValueError(f"sample {index} is bad")
        return index

def told(*values):
    states = random.getstate(), torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist()
    values = [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]
    print(hashlib.md5(repr((values, states)).encode()).hexdigest()[:8], flush=True)

torch.manual_seed(1); random.seed(2); numpy.random.seed(3)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5))
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
train, test = DataLoader(Augmented(), batch_size=8, shuffle=True), DataLoader(Plain(), batch_size=8)
cached, failing = DataLoader(Cached(), batch_size=4, shuffle=True), DataLoader(Failing(), batch_size=8)
for epoch in range(3):
    now.value = epoch
    for image, label in train:
        told(image, label)
        loss = torch.nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    with torch.no_grad():
        right = 0
        for image, label in test:
            right += int((model(image).argmax(1) == label).sum())
            told(image, label, right)
    for batch in cached:
        told(batch)
    told(list(cached.dataset.kept))
    for number, batch in enumerate(failing):
        told(batch)
        if number == 1:
            break  # left early
print("at the end")
for batch in failing:
    told(batch)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The script in one process and on two ranks; returns both endings, and how often samples were read on ranks."""
    if why_no_private_world():
        pytest.skip(why_no_private_world())
    from tests.e2e.support import Flatout

    flatout = Flatout(tmp_path_factory.mktemp("input"))
    flatout.write(SCRIPT)
    name = f"/dev/shm/test-{os.getpid()}"
    length = 8 * RANKS * EPOCHS * 2 * SAMPLES
    try:
        _empty(name, length)
        one = subprocess.run([sys.executable, "train.py", name], cwd=flatout.folder, capture_output=True, text=True)
        _empty(name, length)
        two = flatout("run", "--nproc-per-node", str(RANKS), "train.py", name)
        with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            reads = list((ctypes.c_long * (length // 8)).from_buffer_copy(memory))
    finally:
        os.unlink(name)
    return one, two, reads


def _empty(name, length):
    with open(name, "wb") as file:
        file.truncate(length)


def reads_of(reads, rank, epoch, number):
    first = ((rank * EPOCHS + epoch) * 2 + number) * SAMPLES
    return reads[first : first + SAMPLES]


def test_batches_streams_and_data_sets_are_those_of_one_process(ended):
    one, two, _ = ended
    assert one.stdout.count("\n") == 3 * (6 + 6 + 6 + 1 + 2) + 1 + 3
    assert two.out == one.stdout


def test_each_sample_of_an_epoch_is_read_by_one_rank(ended):
    _, two, reads = ended
    assert "handing it over" not in two.err, two.err
    for epoch in range(1, EPOCHS):
        for number in range(2):
            each = [reads_of(reads, rank, epoch, number) for rank in range(RANKS)]
            assert [sum(read) for read in zip(*each, strict=True)] == [1] * SAMPLES
            assert [sum(read) for read in each] == [SAMPLES // 2] * 2


def test_an_error_in_a_sample_is_raised_and_told_as_in_one_process(ended):
    one, two, _ = ended
    assert (one.returncode, two.code) == (1, 1)
    assert one.stderr.rstrip().endswith("ValueError: sample 29 is bad")
    assert two.err.count("ValueError: sample 29 is bad") == 1


def test_the_last_lines_say_what_was_divided_and_what_was_not(ended):
    err = ended[1].err
    whole = "made by every rank: Cached changes while it is read: Cached.kept"
    assert f"loader of Augmented ({place('in train:')}): 16 of 18 batches divided among the ranks" in err
    assert f"loader of Plain ({place('in test:')}): 16 of 18 batches divided among the ranks" in err
    assert f"loader of Cached ({place('in cached:')}): {whole}" in err
    assert "samples were made once, divided among the ranks, and" in err


def place(text):
    return f"train.py:{SCRIPT[: SCRIPT.index(text)].count(chr(10)) + 1}"
