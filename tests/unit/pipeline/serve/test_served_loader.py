"""One loader's data set and collate function, as all that serves them asks for them; and the passes over it.

Modules: flatout.pipeline.serve.pass_state.
"""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.serve.pass_state import PassState
from flatout.pipeline.serve.served_loader import CachePolicy, ServedLoader
from flatout.torch_loader.served_pass import ServedPass
from flatout.watch.state_guard import StateGuard


class Rows(Dataset):
    def __init__(self):
        self.count = 0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([float(index)]) + torch.rand(1)


def served(loader, **named):
    return ServedLoader(loader, CachePolicy(MemoryBudget(10**6), **named))


def test_the_data_set_is_not_kept_alive():
    loader = DataLoader(Rows())
    known = served(loader)
    assert known.name == "Rows"
    assert known.dataset is loader.dataset
    del loader
    assert known.dataset is None


@pytest.mark.parametrize(
    ("named", "live", "stays", "threads"),
    [
        ({}, True, False, 2),
        ({"num_workers": 1}, False, False, 1),
        ({"num_workers": 1, "persistent_workers": True}, False, True, 1),
    ],
)
def test_what_its_loader_does_about_it(named, live, stays, threads, two_threads):
    known = served(DataLoader(Rows(), **named))
    assert (known.live, known.stays, known.computing_on) == (live, stays, threads)


def test_a_plain_batch_draws_from_the_stream_that_is_given():
    loader = DataLoader(Rows(), batch_size=2)
    known = served(loader)
    indices = torch.tensor([1, 3])
    state = torch.get_rng_state()
    first = known.as_plain(indices, torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(known.as_plain(indices, torch.Generator().manual_seed(1)), first)
    known.as_plain(indices)
    assert not torch.equal(torch.get_rng_state(), state)


def test_batches_from_memory_are_counted():
    hits = []
    loader = DataLoader(Rows())
    known = served(loader, hit=lambda: hits.append(1))
    assert known.given("batch") == "batch"
    assert (known.num_served, hits) == (1, [1])


@pytest.mark.parametrize("leaves_no_trace", [True, False])
def test_looking_puts_back_streams_alone_where_nothing_else_is_left(leaves_no_trace):
    loader = DataLoader(Rows())
    known = served(loader)
    known.leaves_no_trace = leaves_no_trace
    with known.looking(), StateGuard(loader.dataset):
        loader.dataset.count = 5
    assert loader.dataset.count == (5 if leaves_no_trace else 0)


def test_rows_are_kept_as_the_policy_says():
    made = []
    loader = DataLoader(Rows())
    known = served(loader, rows=lambda *given: made.append(given) or "rows")
    assert known.row_cache() == "rows"
    ((collate, budget, compiler, _),) = made
    assert (collate, budget, compiler) == (loader.collate_fn, known.policy.budget, None)


def test_a_pass_of_the_scripts_own_tells_of_its_batches():
    told = []
    loader = DataLoader(Rows(), batch_size=3)
    passes = PassState(loader, lambda indices, *_: told.append(indices.tolist()))
    assert len(list(passes.plain(loader, iter))) == 2
    assert told == []
    list(passes.filling(loader, iter))
    assert told == [[0, 1, 2], [3, 4, 5]]
    assert passes.loader is loader


def test_a_served_pass_draws_the_seed_that_workers_which_stay_will_have():
    loader = DataLoader(Rows(), batch_size=3, num_workers=1, persistent_workers=True)
    passes = PassState(loader, print)
    torch.manual_seed(0)
    first = passes.served(loader, lambda indices, stream: stream)
    state = torch.get_rng_state()
    second = passes.served(loader, lambda indices, stream: stream)
    assert isinstance(first, ServedPass)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.next_batch() is second.next_batch()  # the stream of the one worker, which goes on
    plain = DataLoader(Rows(), batch_size=3, num_workers=1)
    others = PassState(plain, print)
    assert others.served(plain, lambda _, stream: stream).next_batch() is not (
        others.served(plain, lambda _, stream: stream).next_batch()
    )


def test_a_loader_that_is_gone_is_none():
    loader = DataLoader(Rows())
    passes = PassState(loader, print)
    assert passes.loader is loader
    del loader
    assert passes.loader is None
