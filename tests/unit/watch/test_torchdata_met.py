"""Loaders of `torchdata`: nodes and StatefulDataLoader give what they gave; why nothing is done with them is said."""

import random

import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import Dataset, IterableDataset

import flatout
from flatout.watch.dataset_state import random_states, same, undrawn

nodes = pytest.importorskip("torchdata.nodes")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # of torch 2.13, to torchdata 0.11
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # said where there is one core
]


class Numbers(IterableDataset):
    """A stream that counts, and can go on from where it was."""

    def __init__(self):
        self.number = self.begin = 0

    def __iter__(self):
        for number in range(self.begin, 40):
            self.number = number
            yield torch.ones(3) * number + random.random()
        self.begin = 0

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.begin = state["number"] + 1


class Rows(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.ones(3) * index


def drawn(number):
    return torch.ones(2) * number + random.random()


def plain(number):
    return torch.ones(2) * number


LOADERS = {
    "nodes": lambda: nodes.Loader(nodes.Batcher(nodes.Mapper(nodes.IterableWrapper(range(40)), drawn), 4)),
    "nodes, threads": lambda: nodes.Loader(
        nodes.Prefetcher(
            nodes.Batcher(
                nodes.ParallelMapper(nodes.IterableWrapper(range(40)), plain, num_workers=2, method="thread"), 4
            ),
            prefetch_factor=2,
        )
    ),
    "nodes, begun again at each end": lambda: nodes.Loader(
        nodes.Batcher(nodes.IterableWrapper(range(40)), 4), restart_on_stop_iteration=True
    ),
    "stateful, a stream": lambda: stateful.StatefulDataLoader(Numbers(), batch_size=4),
    "stateful, rows": lambda: stateful.StatefulDataLoader(Rows(), batch_size=4, shuffle=True),
    "stateful, rows, workers": lambda: stateful.StatefulDataLoader(Rows(), batch_size=4, num_workers=2),
}


def made(name):
    """Return a loader; some samplers draw as they are made."""
    torch.manual_seed(1)
    return LOADERS[name]()


def walk(loader, asked=(0, 3, 7)):
    """Walk three passes, one of them broken off and begun again; return batches and states."""
    torch.manual_seed(0)
    random.seed(0)
    seen = []
    for number in range(3):
        for count, batch in enumerate(loader):
            seen.append((batch, float(torch.rand(())), random.random()))
            if count in asked:
                seen.append(repr(loader.state_dict()))
            if (number, count) == (1, 5):
                loader.load_state_dict(loader.state_dict())
                break
    return seen


@pytest.mark.parametrize("name", LOADERS)
def test_under_a_fix_all_is_as_before(name):
    expected, states = walk(made(name)), random_states()
    with under("loader-workers", workers=2) as process:
        assert same(walk(made(name)), expected)
        assert undrawn(states, random_states())
        assert not process.site.failure
        assert not process.site.hits


@pytest.mark.parametrize("name", LOADERS)
def test_compiled_it_is_the_loader_itself_and_says_why(name):
    loader = made(name)
    expected = walk(made(name))
    compiled = flatout.compile_loader(loader)
    assert compiled is loader
    assert same(walk(compiled), expected)
    assert flatout.explain(compiled).startswith("left as it is: ")
