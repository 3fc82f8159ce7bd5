"""Data sets whose state lives in one place each, and a training that changes it at one moment or another."""

import random
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

SCALE = 1.0
SETTINGS = {"scale": [1.0]}
SLOW_S = 0.0004
LENGTH, BATCH, PASSES = 27, 3, 3
MOMENTS = ("never", "between passes", "before the first batch", "in a pass", "in every pass")


class Kept(Dataset):
    """Samples that are made from a state; `change` changes it, each time in another way."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        time.sleep(SLOW_S)
        return torch.full((4,), float(index)) * self.factor(index), index

    def factor(self, index):
        return 1.0

    def change(self, number):
        """Change the state."""


class Rooted(Kept):
    """Samples of the type that is the default when they are made."""

    def __init__(self):
        super().__init__(None)

    def __getitem__(self, index):
        time.sleep(SLOW_S)
        return torch.tensor([float(index)]).sqrt(), index


class OfAttribute(Kept):
    scale = 1.0

    def factor(self, index):
        return self.scale

    def change(self, number):
        self.scale = 2.0 + number


class OfSlot(Kept):
    __slots__ = ("scale",)

    def __init__(self, folder):
        super().__init__(folder)
        self.scale = 1.0

    factor, change = OfAttribute.factor, OfAttribute.change


class OfArray(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.table = numpy.ones((LENGTH, 2000))

    def factor(self, index):
        return self.table[index, 1234]

    def change(self, number):
        self.table[5:, 1200:1300] = 2.0 + number


class OfTensor(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.table = torch.ones(LENGTH)

    def factor(self, index):
        return float(self.table[index])

    def change(self, number):
        self.table.data.fill_(2.0 + number)


class OfDicts(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.rows = [{"y": 1.0} for _ in range(LENGTH)]

    def factor(self, index):
        return self.rows[index]["y"]

    def change(self, number):
        for row in self.rows[3:]:
            row["y"] = 2.0 + number


class OfArraysInDict(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.arrays = {name: numpy.ones(LENGTH) for name in "abcdef"}

    def factor(self, index):
        return float(self.arrays["e"][index])

    def change(self, number):
        self.arrays["e"] *= 2.0


class OfGlobal(Kept):
    def factor(self, index):
        return SCALE * SETTINGS["scale"][0]

    def change(self, number):
        global SCALE
        if number % 2:
            SCALE += 1.0
        else:
            SETTINGS["scale"][0] += 1.0


class OfComputedName(Kept):
    """Reads attributes by names that are not written down."""

    def __init__(self, folder):
        super().__init__(folder)
        self.column_y = [1.0] * LENGTH

    def factor(self, index):
        return getattr(self, "column_" + "y")[index]

    def change(self, number):
        self.column_y[:] = [2.0 + number] * LENGTH


class OfTransform(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.transform = lambda index, by=[1.0]: by[0]

    def factor(self, index):
        return self.transform(index)

    def change(self, number):
        self.transform.__defaults__[0][0] = 2.0 + number


class OfFiles(Kept):
    """Reads a file for each sample, under names that it makes up."""

    def __init__(self, folder):
        super().__init__(folder)
        self.write("1.0")

    def write(self, text):
        for index in range(LENGTH):
            (self.folder / f"{index}.txt").write_text(text)

    def factor(self, index):
        with open(self.folder / f"{index}.txt") as file:
            return float(file.read())

    def change(self, number):
        self.write(str(2.0 + number))


class OfNamedFiles(OfFiles):
    def __init__(self, folder):
        super().__init__(folder)
        self.names = [str(folder / f"{index}.txt") for index in range(LENGTH)]

    def factor(self, index):
        with open(self.names[index]) as file:
            return float(file.read())


class OfMap(Kept):
    """Has a file mapped that somebody else writes."""

    def __init__(self, folder):
        super().__init__(folder)
        numpy.save(folder / "table.npy", numpy.ones(LENGTH))
        self.table = numpy.load(folder / "table.npy", mmap_mode="r")

    def factor(self, index):
        return float(self.table[index])

    def change(self, number):
        with open(self.folder / "table.npy", "r+b") as file:
            file.seek(-8 * LENGTH, 2)
            file.write((numpy.ones(LENGTH) * (2.0 + number)).tobytes())


class ReadAtFirst(OfFiles):
    """Reads a file at the first sample, and keeps what it read."""

    table = None

    def factor(self, index):
        if self.table is None:
            self.table = float((self.folder / "0.txt").read_text())
        return self.table


class OfDrawnAtFirst(Kept):
    """Draws at the first sample, and keeps what it drew."""

    drawn = None

    def factor(self, index):
        if self.drawn is None:
            self.drawn = float(torch.rand(()))
        return self.drawn


class Counts(Kept):
    calls = 0

    def factor(self, index):
        self.calls += 1
        return float(self.calls)


class CountsInArray(Kept):
    def __init__(self, folder):
        super().__init__(folder)
        self.seen = numpy.zeros(LENGTH)

    def factor(self, index):
        self.seen[index] += 1.0
        return float(self.seen.sum())


class TurnsLate(Kept):
    """Is another from one sample on."""

    turned = 1.0

    def factor(self, index):
        if index == 20:
            self.turned = 5.0
        return self.turned


class AsksItsWorker(Kept):
    def factor(self, index):
        told = torch.utils.data.get_worker_info()
        return -1.0 if told is None else float(told.id)


class Logs(Kept):
    def factor(self, index):
        with open(self.folder / "log.txt", "a") as file:
            file.write(f"{index}\n")
        return 1.0


STATES = (
    *(OfAttribute, OfSlot, OfArray, OfTensor, OfDicts, OfArraysInDict, OfGlobal, OfComputedName, OfTransform),
    *(OfFiles, OfNamedFiles, OfMap),
)
BY_THEMSELVES = (ReadAtFirst, OfDrawnAtFirst, Counts, CountsInArray, TurnsLate, AsksItsWorker, Logs)


class Collate:
    """A collate function with a state of its own."""

    shift = 0.0

    def __call__(self, samples):
        return torch.stack([sample[0] for sample in samples]) + self.shift, [sample[1] for sample in samples]


def train(kind, moment, folder, num_workers=0, shuffle=True):
    """Walk a loader while something changes its data set; return all that the script sees."""
    global SCALE
    SCALE, SETTINGS["scale"] = 1.0, [1.0]
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    folder.mkdir()
    dataset = kind(folder)
    loader = DataLoader(dataset, BATCH, shuffle=shuffle, num_workers=num_workers)
    seen = []
    for epoch in range(PASSES):
        if moment == "between passes" and epoch:
            dataset.change(epoch)
        batches = iter(loader)
        if moment == "before the first batch" and epoch:
            dataset.change(epoch)
        for number, batch in enumerate(batches):
            seen.append((batch, random.random(), float(torch.rand(()))))
            if number == 5 and (moment == "in every pass" or (moment == "in a pass" and epoch == 1)):
                dataset.change(epoch)
    logs = sorted(path.read_text() for path in folder.glob("log.txt")) if num_workers == 0 else []
    return seen, logs, [getattr(dataset, name, None) for name in ("calls", "turned", "table")]
