"""An iterator of the script's own that tells of its batches."""

import random
import threading
import weakref

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.torch_loader.told_batches import noted, tell, weakly_called


class Rows(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor(index)


class Draws(Rows):
    def __getitem__(self, index):
        return torch.tensor(index + int(random.random()))


class Check:
    """Says something against every batch with a 4 in it."""

    def __init__(self, collate):
        self.collate, self.against = collate, ""

    def __call__(self, samples):
        batch = self.collate(samples)
        self.against = "holds a 4" if 4 in batch else ""
        return batch


def told(loader, stands=lambda: True, *, read=list):
    found = []
    twin = noted(loader, Check) if loader.num_workers else None
    iterator = iter(loader if twin is None else twin)

    def deliver(indices, batch, drew, against):
        found.append((indices.tolist(), batch.tolist(), drew, against))

    batches = [batch.tolist() for batch in read(tell(iterator, twin, deliver, Check, stands))]
    return batches, found


@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_is_told_with_its_indices_and_what_speaks_against_it(workers):
    batches, found = told(DataLoader(Rows(), batch_size=2, num_workers=workers))
    assert batches == [[0, 1], [2, 3], [4, 5]]
    assert found == [
        ([0, 1], [0, 1], False, ""),
        ([2, 3], [2, 3], False, ""),
        ([4, 5], [4, 5], False, "holds a 4"),
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_numbers_that_are_drawn_are_told(workers):
    _, found = told(DataLoader(Draws(), batch_size=3, num_workers=workers))
    assert [drew for _, _, drew, _ in found] == [True, True]


def test_what_stands_no_more_is_not_told():
    answers = iter([True, False, True])
    _, found = told(DataLoader(Rows(), batch_size=2), lambda: next(answers))
    assert [indices for indices, *_ in found] == [[0, 1], [4, 5]]


def test_batches_that_another_thread_reads_are_the_scripts_own():
    def read(iterator):
        batches = []
        thread = threading.Thread(target=lambda: batches.extend(iterator))
        thread.start()
        thread.join()
        return batches

    batches, found = told(DataLoader(Rows(), batch_size=2), read=read)
    assert (len(batches), found) == (3, [])


def test_indices_of_no_samples_are_not_told():
    batches, found = told(DataLoader(Rows(), batch_sampler=[[0], [1]], collate_fn=torch.stack))
    assert len(batches) == len(found) == 2


def test_after_an_error_nothing_more_is_told():
    class Fails(Rows):
        def __getitem__(self, index):
            if index == 1:
                raise ValueError("no such row")
            return super().__getitem__(index)

    found = []
    loader = DataLoader(Fails(), batch_size=1, num_workers=1)
    twin = noted(loader, Check)
    iterator = tell(iter(twin), twin, lambda indices, *_: found.append(indices.tolist()), Check, lambda: True)
    next(iterator)
    with pytest.raises(ValueError, match="no such row"):
        next(iterator)
    next(iterator)
    assert found == [[0]]
    iterator._shutdown_workers()


def test_whoever_is_told_is_not_kept_alive():
    class Cache:
        def __init__(self):
            self.seen = []

        def take(self, *told):
            self.seen.append(told)

    cache = Cache()
    call = weakly_called(weakref.WeakMethod(cache.take))
    call(1, 2, False, "")
    assert cache.seen == [(1, 2, False, "")]
    del cache
    call(1, 2, False, "")  # nobody is there
