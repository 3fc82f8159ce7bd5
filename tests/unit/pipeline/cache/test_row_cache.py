"""Rows that are kept as batches deliver them: what is refused, what fits, what comes out."""

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import RowCache, no_room, rows_refused
from flatout.pipeline.inspect.row_independence import DEPENDS, DRAWS


class Rows(torch.utils.data.Dataset):
    def __init__(self, number=6):
        self.values = torch.arange(float(number))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index].clone(), int(index)


def cache(collate=default_collate, budget=10**6, **named):
    return RowCache(collate, MemoryBudget(budget), **named)


def add(kept, indices, data=None, batch=None):
    data = data or Rows()
    made = kept.collate([data[index] for index in indices]) if batch is None else batch
    return kept.add(data, torch.tensor(indices), made)


def test_rows_come_out_as_they_were_delivered_in_any_order():
    kept = cache()
    assert not kept.full
    assert kept.missing(torch.tensor([0, 1])).tolist() == [0, 1]
    for indices in ([0, 1], [2, 3], [1, 4], [5]):
        assert add(kept, indices) == ""
    assert kept.full
    values, numbers = kept.take(torch.tensor([5, 0, 3]))
    assert values.tolist() == [5.0, 0.0, 3.0]
    assert numbers.tolist() == [5, 0, 3]
    assert kept.missing(torch.tensor([0, 5])).tolist() == []


def test_what_is_missing_is_told():
    kept = cache()
    add(kept, [0, 2])
    assert kept.missing(torch.tensor([0, 1, 2, 3])).tolist() == [1, 3]
    assert kept.gather is None


def halves(samples):
    return default_collate(samples[: len(samples) // 2])


def padded(samples):
    longest = max(int(number) for _, number in samples)
    return torch.stack([torch.full((8,), float(longest)) for _ in samples])


def drawn(samples):
    return torch.rand(len(samples), 2)


def fails_alone(samples):
    if len(samples) < 2:
        raise ValueError("one")
    return default_collate(samples)


class Counts:
    def __init__(self):
        self.number = 0

    def __call__(self, samples):
        self.number += 1
        return default_collate(samples)


@pytest.mark.parametrize(
    ("collate", "reason"),
    [
        (halves, "its batches hold something that is not one row per sample"),
        (lambda samples: object(), "its batches hold objects of a class that is not known (object)"),
        (padded, DEPENDS),
        (drawn, DEPENDS),
        (fails_alone, "its collate function raised ValueError on 1 samples"),
        (Counts(), DEPENDS),
    ],
)
def test_rows_that_are_not_their_samples_alone_are_refused(collate, reason):
    state = torch.get_rng_state()
    kept = cache(collate)
    batch = collate([Rows()[index] for index in (0, 1, 3)])
    torch.set_rng_state(state)
    assert add(kept, [0, 1, 3], batch=batch) == reason
    assert kept.store is None
    assert torch.equal(torch.get_rng_state(), state)


def test_memory_that_stands_twice_in_a_batch_is_refused():
    def twice(samples):
        values = torch.stack([value for value, _ in samples])
        return values, values

    assert "a tensor occurs twice" in add(cache(twice), [0, 1])


def test_a_function_of_the_scripts_own_that_stacks_is_kept():
    kept = cache(lambda samples: torch.stack([value * 2 for value, _ in samples]))
    for indices in ([0, 1, 2], [3, 4, 5]):
        assert add(kept, indices) == ""
    assert kept.take(torch.tensor([4])).tolist() == [8.0]


def test_batches_of_another_shape_are_refused_later():
    kept = cache(lambda samples: torch.stack([torch.full((2,), value) for value, _ in samples]))
    assert add(kept, [0, 1]) == ""
    assert add(kept, [2, 3], batch=torch.ones(2, 3)) == "its batches differ in shape"


def test_what_does_not_fit_is_told_with_its_numbers():
    assert add(cache(budget=40), [0, 1]) == "6 samples of 12 B take 72 B, and 40 B fit into the memory budget"


def test_where_memory_ends_a_file_takes_the_rows():
    asked = []

    def room(num_bytes):
        asked.append(num_bytes)
        return torch.zeros(num_bytes, dtype=torch.uint8)

    data = Rows()
    kept = RowCache(lambda samples: torch.stack([value for value, _ in samples]), MemoryBudget(8), room=room)
    assert add(kept, [0, 1], data) == ""
    assert len(asked) == 1
    assert no_room(5) is None


def test_a_few_samples_show_that_rows_are_refused_and_nothing_stays():
    state = torch.get_rng_state()
    for collate, reason in ((padded, DEPENDS), (drawn, DRAWS)):
        kept = cache(collate)
        assert rows_refused(kept, DataLoader(Rows(), collate_fn=collate)) == reason
    assert torch.equal(torch.get_rng_state(), state)
    assert rows_refused(cache(), DataLoader(Rows())) == ""  # torch's own
    assert rows_refused(cache(padded), DataLoader(Rows(), collate_fn=padded, num_workers=1)) == ""
    assert rows_refused(cache(fails_alone), DataLoader(Rows(1), collate_fn=fails_alone)) == ""
