"""Data sets as scripts have them, whose reads are counted where nothing of the script's sees it."""

import ctypes
import logging
import mmap
import random

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SAMPLES, MOST_RANKS = 48, 4
_MEMORY = mmap.mmap(-1, 8 * MOST_RANKS * SAMPLES)
_ADDRESS = ctypes.addressof(ctypes.c_char.from_buffer(_MEMORY))
RANK = ctypes.c_long(0)  # of this process
_OWN = ctypes.addressof(RANK)


def reads(ranks):
    """Return how often each rank has read each sample."""
    return [list((ctypes.c_long * SAMPLES).from_address(_ADDRESS + 8 * SAMPLES * rank)) for rank in range(ranks)]


def forget_reads():
    ctypes.memset(_ADDRESS, 0, len(_MEMORY))


def _count(index):
    rank = ctypes.c_long.from_address(_OWN).value
    ctypes.c_long.from_address(_ADDRESS + 8 * (SAMPLES * rank + index)).value += 1


class Counted(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        _count(index)
        return self.make(index)


class Pure(Counted):
    def make(self, index):
        image = torch.arange(48.0).view(4, 4, 3) + index
        return image.permute(2, 0, 1), {"label": index % 3, "name": f"n{index}"}


class Augmented(Counted):
    """Draws from all three streams of the process."""

    def make(self, index):
        noise = torch.rand(3) + random.random()
        return noise + index, numpy.random.random(2)


class Generators(Counted):
    def __init__(self):
        self.numpys, self.pythons = numpy.random.default_rng(5), random.Random(4)
        self.torchs = torch.Generator().manual_seed(3)

    def make(self, index):
        return self.numpys.random(2), self.pythons.random(), torch.rand(2, generator=self.torchs) + index


class Many(Counted):
    def __getitems__(self, indices):
        return [(self[index], index) for index in indices]

    def make(self, index):
        return float(index)


class Lazy(Counted):
    def __init__(self):
        self.table = None

    def make(self, index):
        if self.table is None:
            self.table = torch.arange(100.0)
        return self.table[index] * 2


class Epochs(Counted):
    """Is told the number of the epoch, as some are."""

    epoch = 0

    def make(self, index):
        return torch.tensor([index, self.epoch])


class Modelled(Counted):
    """Calls a module for each sample."""

    def __init__(self):
        self.net = torch.nn.Linear(4, 4)

    @torch.no_grad()
    def make(self, index):
        return self.net(torch.full((1, 4), float(index)))[0]


class Varying(Counted):
    """Draws another number of words for each sample."""

    def make(self, index):
        return sum(random.random() for _ in range(index % 5)), index


class Mixed(Counted):
    """Gives samples that depend on those beside them."""

    def __getitems__(self, indices):
        return [(index, len(indices)) for index in indices]


class Cached(Counted):
    def __init__(self):
        self.cache = {}

    def make(self, index):
        if index not in self.cache:
            self.cache[index] = torch.rand(2) + index
        return self.cache[index]


class LateCached(Counted):
    """Begins to keep something after a while."""

    def __init__(self):
        self.kept = {}

    def make(self, index):
        if index >= 40 and index not in self.kept:
            self.kept[index] = index * 2
        return torch.tensor([index, self.kept.get(index, 0)])


class LateCount(Counted):
    def __init__(self):
        self.count = 0

    def make(self, index):
        self.count += index >= 40
        return torch.tensor([index, self.count])


class Bytes(Counted):
    """Counts in memory that no attribute is put back in."""

    def __init__(self):
        self.counts = numpy.zeros(4)

    def make(self, index):
        self.counts[0] += index >= 40
        return torch.tensor([index, int(self.counts[0])])


class Filled(Counted):
    """Fills an array, from the last samples on."""

    def __init__(self):
        self.kept = numpy.zeros(SAMPLES)

    def make(self, index):
        if index >= 44:
            self.kept[index] = index * 3
        return torch.tensor([index, int(self.kept[index])])


class Failing(Counted):
    def make(self, index):
        if index == 37:
            raise ValueError(f"sample {index} is bad")
        return index


class Printing(Counted):
    def make(self, index):
        if index % 20 == 19:
            print("odd", index)
            logging.getLogger("odd").error("odd %d", index)
        return index


class Writing(Counted):
    def __init__(self, path):
        self.path = str(path)

    def make(self, index):
        if index % 30 == 29:
            with open(self.path, "a") as file:
                file.write(f"{index}\n")
        return index


class Holding(Counted):
    """Gives what it holds itself."""

    def __init__(self):
        self.items = [torch.full((3,), float(index)) for index in range(SAMPLES)]

    def make(self, index):
        return self.items[index]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))


def doubled(batch):
    """Change samples in place, as a collate function may."""
    return [each.mul_(2) for each in batch]


def as_it_is(batch):
    return batch


def begin():
    """Begin all streams alike."""
    torch.manual_seed(1)
    random.seed(2)
    numpy.random.seed(3)


def streams():
    numpys = numpy.random.get_state()
    return repr((random.getstate(), numpys[1].tolist(), numpys[2:], torch.get_rng_state().tolist()))


def content(value):
    """Return a batch as something that is equal for equal batches."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.stride(), value.tolist()
    if isinstance(value, dict):
        return {key: content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [content(each) for each in value]
    return type(value), repr(value)


def walk(dataset, epochs=2, most=None, before=lambda dataset, epoch: None, **given):
    """Return all batches of some passes, each with the streams after it; errors as texts; attributes at the end."""
    begin()
    found = []
    loader = DataLoader(dataset, **{"batch_size": 8, "shuffle": True, **given})
    for epoch in range(epochs):
        before(dataset, epoch)
        try:
            for number, batch in enumerate(loader):
                found.append((content(batch), streams()))
                torch.rand(1 + number % 2)  # the step draws, too
                if most is not None and number + 1 == most:
                    break
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    state = {name: content(value) for name, value in vars(dataset).items() if name in ("cache", "kept", "count")}
    return found, state, streams()
