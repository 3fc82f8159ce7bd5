"""Batches through shared memory: what comes out is what went in, in memory of its own."""

import numpy
import pytest
import torch

from flatout.torch_loader.predicted.batch_transport import BatchArena, bytes_of
from flatout.watch.dataset_state import same


def through(batch, *, room=None):
    arena = BatchArena(2, bytes_of(batch) if room is None else room)
    return arena.take(3, arena.put(3, batch))


@pytest.mark.parametrize(
    "batch",
    [
        (torch.rand(4, 3), torch.tensor([1, 2])),
        {"half": torch.rand(5).bfloat16(), "flags": torch.tensor([True, False]), "none": None, "name": "x"},
        [torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.rand(3, 4).t()],
        [torch.empty(0, 3), torch.tensor(1.5), torch.rand(7)[2:5]],
        (numpy.arange(12.0).reshape(3, 4), numpy.asfortranarray(numpy.ones((2, 3))), numpy.array(["a", "bc"])),
        [numpy.zeros(0), numpy.array([None, "x"], dtype=object), b"bytes", 3, 1.5],
        torch.complex(torch.rand(3), torch.rand(3)),
    ],
)
def test_a_batch_arrives_as_it_was(batch):
    arrived = through(batch)
    assert same(arrived, batch) or repr(arrived) == repr(batch)  # `same` says nothing of objects in arrays


def test_what_does_not_fit_is_pickled():
    batch = [torch.rand(100_000), torch.rand(3)]
    assert same(through(batch, room=1), batch)


def test_tensors_in_one_memory_stay_so():
    tensor = torch.rand(4)
    one, other = through([tensor, tensor.view(2, 2)])
    one[0] = 5.0
    assert other[0, 0] == 5.0
    again = through([tensor, tensor])
    assert again[0] is again[1]


def test_the_memory_of_a_large_batch_that_is_gone_is_written_again():
    arena = BatchArena(1, 1 << 23)
    parcel = arena.put(0, torch.zeros(1 << 20))
    places = set()
    for _ in range(3):
        batch = arena.take(0, parcel)
        places.add(batch.data_ptr())
        del batch
    assert len(places) == 1


def test_what_was_taken_stays_as_it_is_when_its_slot_is_written_again():
    arena = BatchArena(1, 1 << 20)
    first = arena.take(0, arena.put(0, torch.zeros(1000)))
    arena.put(1, torch.ones(1000))
    assert not first.any()
    assert not first.is_shared()
    assert first.resize_(2000).shape == (2000,)
