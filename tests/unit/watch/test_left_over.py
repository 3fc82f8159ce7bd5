"""After a thousand passes, ended in every way, nothing of them is left: no thread, process, handle or shared memory."""

import gc
import itertools
import os
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from tests.torchvision_stub import torchvision
from torch.utils.data import DataLoader, Dataset, TensorDataset

import flatout

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")]
v1 = torchvision.transforms


class Pictures(Dataset):
    """Images that a transform is done to; its kernels are known."""

    def __init__(self, transform):
        self.images = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
        self.transform = transform

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.transform(v1.functional.to_pil_image(self.images[index])), index


class Waits(Dataset):
    """Samples that take time, but no processor."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.full((4,), float(index)), index


class Computes(Dataset):
    """Nothing is known of it but that its samples are the same each time."""

    def __init__(self):
        self.rows = torch.randn(40, 4)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.rows[index].cumsum(0), str(index)


class Dear(Pictures):
    """Images that take longer to read than to hand over."""

    def __getitem__(self, index):
        time.sleep(0.0002)
        return super().__getitem__(index)


def padded(samples):
    return torch.nn.utils.rnn.pad_sequence([row for row, _ in samples], batch_first=True)


WAYS = {
    "rows of an array": lambda: DataLoader(TensorDataset(torch.randn(40, 4)), 8, shuffle=True),
    "kernels": lambda: DataLoader(Pictures(v1.ToTensor()), 8, shuffle=True),
    "random kernels": lambda: DataLoader(Pictures(v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()])), 8),
    "rows kept": lambda: DataLoader(Computes(), 8, shuffle=True),
    "samples kept": lambda: DataLoader(Computes(), 8, collate_fn=padded),
    "threads": lambda: DataLoader(Waits(), 8, shuffle=True),
    "read by workers": lambda: DataLoader(
        Dear(v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()])), 8, shuffle=True, num_workers=2
    ),
    "would have workers": lambda: DataLoader(TensorDataset(torch.randn(40, 4)), 8, num_workers=2),
}


def open_things():
    gc.collect()
    process = psutil.Process()
    return {
        "threads": sorted(one.name for one in threading.enumerate()),
        "processes": process.children(recursive=True),
        "handles": len(os.listdir("/proc/self/fd")),
        "shared memory": sum("/dev/shm" in line for line in Path("/proc/self/maps").read_text().splitlines()),
    }


def settled(wanted=None):
    """Return what is open, once it is as wanted: threads that read ahead end when they see that their pass is over."""
    until = time.monotonic() + 10
    while (found := open_things()) != wanted and time.monotonic() < until:
        if wanted is None and not any(name.startswith("flatout") for name in found["threads"]):
            break
        time.sleep(0.05)
    return found


def one_pass(loader, number):
    """Begin a pass, and end it in one of the ways in which scripts do."""
    if number % 10 == 0:
        list(loader)
    elif number % 10 == 1:
        with pytest.raises(KeyboardInterrupt):
            for _ in loader:
                raise KeyboardInterrupt
    elif number % 10 == 2:
        next(iter(zip(loader, loader, strict=True)))
    elif number % 10 == 3:
        iter(loader)
    else:
        list(itertools.islice(loader, number % 5))


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.few(1)
def test_a_thousand_passes_leave_nothing(make):
    loader = flatout.compile_loader(make())
    for number in range(20):
        one_pass(loader, number)
    before = settled()
    for number in range(1000):
        one_pass(loader, number)
    assert settled(before) == before


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.full
def test_loaders_that_are_gone_leave_nothing(make):
    list(flatout.compile_loader(make()))
    before = settled()
    for number in range(60):
        one_pass(flatout.compile_loader(make()), number)
    assert settled(before) == before
