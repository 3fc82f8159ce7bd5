"""Memory is written again only when nothing outside refers to any part of the batch that lay in it."""

import gc
import random
import threading
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import flatout
from flatout.native.holders import can_count_holders
from flatout.native.recycled_memory import RecycledMemory

SHAPE = (512, 1024)  # 2 MiB of float32
LARGE = pytest.mark.skipif(not can_count_holders(), reason="this torch does not count a storage's holders")


def taken(memory: RecycledMemory, value: float, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return memory.empty(shape, torch.float32).fill_(value)


HOLDERS = {
    "the tensor": lambda batch: batch,
    "a view": lambda batch: batch[3:5],
    "a transposed view": lambda batch: batch.t(),
    "a detached alias": lambda batch: batch.detach(),
    "an array": lambda batch: batch.numpy()[1:],
    "its storage": lambda batch: batch.untyped_storage(),
    "an array by DLPack": lambda batch: np.from_dlpack(batch),
    "a graph": lambda batch: (batch * torch.ones((), requires_grad=True)).sum(),
    "a parameter": lambda batch: torch.nn.Parameter(batch),
    "a closure": lambda batch: lambda: batch.sum(),
    "a cycle": lambda batch: (lambda cycle: cycle.append((cycle, batch)) or cycle)([]),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_what_is_held_is_not_written_again(holder):
    memory = RecycledMemory()
    first = taken(memory, 1.0)
    place, held = first.data_ptr(), holder(first)
    del first
    others = [taken(memory, 2.0) for _ in range(4)]
    assert place not in [one.data_ptr() for one in others]
    assert held is not None


@LARGE
def test_what_is_not_held_is_written_again():
    memory = RecycledMemory()
    places = {taken(memory, value).data_ptr() for value in range(20)}
    assert len(places) == 1


@LARGE
def test_two_batches_in_turns_take_the_memory_of_two():
    memory, places, batch = RecycledMemory(), set(), None
    for value in range(20):
        batch = taken(memory, value)
        places.add(batch.data_ptr())
    assert len(places) == 2


@LARGE
def test_memory_that_is_needed_no_more_is_given_back():
    memory = RecycledMemory()
    many = [taken(memory, value) for value in range(8)]
    assert len(memory._held) == 8
    del many
    taken(memory, 9.0)
    assert len(memory._held) <= 2


def test_memory_ends_with_who_gives_it():
    memory = RecycledMemory()
    storage = weakref.ref(taken(memory, 1.0).untyped_storage())
    del memory
    gc.collect()
    assert storage() is None


def test_a_smaller_batch_has_a_storage_of_its_own_size():
    memory = RecycledMemory()
    taken(memory, 1.0)
    rest = taken(memory, 2.0, (300, 2048))
    assert rest.untyped_storage().nbytes() == rest.nbytes


def test_what_was_moved_to_another_process_or_resized_is_not_written_again():
    memory = RecycledMemory()
    shared, grown = taken(memory, 1.0), taken(memory, 2.0)
    shared.share_memory_()
    grown.resize_(600, 1024)
    place = shared.data_ptr()
    del shared, grown
    again = [taken(memory, 3.0) for _ in range(3)]
    assert place not in [one.data_ptr() for one in again]
    assert all(one.shape == SHAPE and one.untyped_storage().nbytes() == one.nbytes for one in again)


def test_it_cannot_be_told_from_a_fresh_tensor():
    memory = RecycledMemory()
    taken(memory, 1.0)
    again = memory.empty(SHAPE, torch.float32)
    assert (again.shape, again.stride(), again.dtype) == (SHAPE, (1024, 1), torch.float32)
    assert again.is_leaf
    assert not again._is_view()
    assert not again.requires_grad
    assert again.requires_grad_().mul(2).sum().backward() is None
    assert again.grad is not None


def test_threads_that_ask_at_once_never_get_the_same_memory():
    memory, wrong = RecycledMemory(), []

    def work(seed: int) -> None:
        luck, kept = random.Random(seed), []
        for turn in range(150):
            batch = taken(memory, seed * 1000 + turn)
            kept.append((batch[luck.randrange(512)], seed * 1000 + turn))
            if len(kept) > luck.randrange(4):
                row, value = kept.pop(luck.randrange(len(kept)))
                wrong.extend([value] * (not bool((row == value).all())))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("kept", [0, 1, 3, 100])
def test_a_script_that_keeps_batches_finds_them_as_they_were(kept):
    data = TensorDataset(torch.randn(64, 3, 64, 64), torch.arange(64))
    plain, compiled = DataLoader(data, 16, shuffle=True), flatout.compile_loader(DataLoader(data, 16, shuffle=True))
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for epoch in range(4):
        torch.manual_seed(epoch)
        wanted = [images for images, _ in plain]
        torch.manual_seed(epoch)
        for (images, _), right in zip(compiled, wanted, strict=True):
            held.append((images[5:], right[5:]))
            held = held[-kept:] if kept else []
            assert all(torch.equal(one, other) for one, other in held)
            assert torch.equal(images, right)
            assert images.stride() == right.stride()
