"""Indices that are drawn ahead of their batches, and the workers that make these."""

import weakref

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from flatout.torch_loader import worker_pool
from flatout.torch_loader.worker_origins import WorkerOrigin
from flatout.torch_loader.worker_pool import IndicesAhead, WorkerPool, _Flag, draws_at_start, generator_of


class Rows(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor(index)


def ahead(number=4, generator=None):
    def draw():
        for _ in range(number):
            yield torch.rand(1, generator=generator).item()

    return IndicesAhead(draw(), generator)


def test_indices_are_taken_in_the_order_in_which_they_were_drawn():
    indices = IndicesAhead(iter("abc"), None)
    assert [next(indices), next(indices)] == ["a", "b"]
    assert len(indices) == 2
    assert indices.take() == "a"
    indices.put_back("a")
    assert [indices.take() for _ in range(3)] == ["a", "b", "c"]
    assert not indices.exhausted
    for _ in range(2):
        with pytest.raises(StopIteration):
            indices.take()
    assert indices.exhausted
    assert list(indices) == []


def test_filling_draws_one_now():
    indices = IndicesAhead(iter("ab"), None)
    indices.fill()
    assert len(indices) == 1


def test_a_generator_of_the_scripts_shows_only_what_was_taken():
    generator, plain = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    indices = ahead(generator=generator)
    for _ in range(3):
        next(indices)
    assert torch.equal(generator.get_state(), plain.get_state())  # drawn, and not seen
    for _ in range(4):
        assert indices.take() == torch.rand(1, generator=plain).item()
        assert torch.equal(generator.get_state(), plain.get_state())
    with pytest.raises(StopIteration):
        indices.take()


@pytest.mark.parametrize(
    ("sampler", "known"),
    [
        (SequentialSampler(Rows()), True),
        (RandomSampler(Rows()), True),
        (SubsetRandomSampler([1, 2]), True),
        (WeightedRandomSampler([1.0], 1), True),
        (DistributedSampler(Rows(), 1, 0), True),
        ([[0, 1]], True),
        (BatchSampler(RandomSampler(Rows()), 2, False), True),
        (RandomSampler(Rows(), generator=torch.Generator()), True),
        (RandomSampler(Rows(), generator=torch.default_generator), False),
        (Sampler(), False),
        (type("Mine", (RandomSampler,), {})(Rows()), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_whose_draws_are_the_same_when_they_come_early(sampler, known):
    assert draws_at_start(sampler) is known


def test_the_generator_of_a_loaders_sampler():
    generator = torch.Generator()
    assert generator_of(DataLoader(Rows(), shuffle=True, generator=generator)) is generator
    assert generator_of(DataLoader(Rows())) is None
    assert (
        generator_of(DataLoader(Rows(), batch_size=None, sampler=RandomSampler(Rows(), generator=generator)))
        is generator
    )
    assert generator_of(DataLoader(Rows(), batch_sampler=[[0]])) is None


def test_a_flag_is_shared_and_set_once():
    flag = _Flag()
    assert not flag.is_set()
    flag.set()
    assert flag.is_set()
    assert isinstance(worker_pool._forking().Event(), _Flag)


class User:
    finished = False


def test_workers_serve_one_pass_and_the_next_without_the_main_stream_noticing():
    loader = DataLoader(Rows(), batch_size=2)
    before = torch.get_rng_state()
    first = IndicesAhead(iter([[0, 1], [2, 3]]), None)
    pool = WorkerPool(loader, WorkerOrigin(loader), first, workers=1, prefetch=2, persistent=True, hang_s=60)
    try:
        user = User()
        pool.user = weakref.ref(user)
        assert pool.busy
        assert [pool.next().batch.tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(StopIteration):
            pool.next()
        user.finished = True
        assert not pool.busy
        pool.again(IndicesAhead(iter([[4, 5]]), None))
        assert pool.next().batch.tolist() == [4, 5]
        assert torch.equal(torch.get_rng_state(), before)
        assert loader.num_workers == 0
    finally:
        pool.end()
