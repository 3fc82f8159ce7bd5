"""A loader that another thread reads is the script's own: nothing puts the main thread's random streams back."""

import queue
import threading
import time

import pytest
import torch
from tests.torchvision_stub import torchvision
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader
from flatout.watch.main_thread import off_main_thread


class Ramp(Dataset):
    """Rows that take a moment, so that reading and drawing overlap."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        time.sleep(0.0003)
        return torch.full((4,), float(index))


class Flipped(Ramp):
    def __init__(self):
        self.pixels = torch.arange(96 * 48).reshape(96, 3, 4, 4).to(torch.uint8)
        self.transform = torchvision.transforms.RandomVerticalFlip(0.0)

    def __getitem__(self, index):
        time.sleep(0.0003)
        return self.transform(self.pixels[index])


def read_behind(iterator):
    """Yield what a thread takes from an iterator, as `prefetch_generator` does."""
    taken = queue.Queue(2)

    def read():
        for batch in iterator:
            taken.put(batch)
        taken.put(None)

    thread = threading.Thread(target=read)
    thread.start()
    while (batch := taken.get()) is not None:
        yield batch
    thread.join()


def masks(loader):
    """What the main thread draws while another one reads, over three passes, and the batches."""
    torch.manual_seed(3)
    drawn, batches = [], []
    for _ in range(3):
        for batch in read_behind(iter(loader)):
            batches.append(batch)
            for _ in range(6):
                drawn.append(torch.rand(3))
                time.sleep(0.0002)
    return torch.stack(drawn), batches


@pytest.mark.slow
def test_no_number_is_drawn_twice_while_another_thread_reads():
    plain = masks(DataLoader(Ramp(), batch_size=8, shuffle=True))
    compiled = masks(compile_loader(DataLoader(Ramp(), batch_size=8, shuffle=True)))
    assert torch.equal(plain[0], compiled[0])
    assert all(map(torch.equal, plain[1], compiled[1]))


@pytest.mark.slow
def test_nor_where_samples_draw_themselves():
    drawn, _ = masks(compile_loader(DataLoader(Flipped(), batch_size=8)))
    assert len({tuple(each.tolist()) for each in drawn}) == len(drawn)


def test_a_pass_that_begins_in_another_thread_is_the_scripts_own():
    loader, found = compile_loader(DataLoader(Ramp(), batch_size=8)), []
    thread = threading.Thread(target=lambda: found.extend((type(iter(loader)), off_main_thread())))
    thread.start()
    thread.join()
    assert found == [type(iter(DataLoader(Ramp(), batch_size=8))), True]
    assert not off_main_thread()


def test_a_batch_of_no_samples_is_as_the_plain_loader_has_it():
    def loader():
        data = Flipped()
        data.transform = torchvision.transforms.ConvertImageDtype(torch.float32)
        return DataLoader(data, batch_sampler=[[0, 1], [], [2]])

    with pytest.raises(Exception) as plain:
        list(loader())
    with pytest.raises(type(plain.value)):
        list(compile_loader(loader()))
