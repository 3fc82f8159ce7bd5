"""What serves a loader from pass to pass: rows that are kept, batches made by kernels, and what follows a change.

Modules: flatout.pipeline.serve.batch_compiled, flatout.pipeline.serve.kept_rows.
"""

import numpy as np
import pytest
import torch
from tests.torchvision_stub import torchvision
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.serve.batch_compiled import BatchCompiled
from flatout.pipeline.serve.kept_rows import KeptRows
from flatout.pipeline.serve.loader_server import LoaderServer
from flatout.pipeline.serve.loader_strategy import Passthrough
from flatout.pipeline.serve.served_loader import CachePolicy

T = torchvision.transforms


class Rows(Dataset):
    def __init__(self):
        self.scale, self.values = 1.0, torch.arange(8.0)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.values[index] * self.scale, index


class Images(Dataset):
    def __init__(self, *operations):
        self.pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 6, 3), dtype=np.uint8)
        self.transform = T.Compose([*operations, T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(T.functional.to_pil_image(self.pixels[index])), index


def passes(data, number=3, change=lambda at: None, **named):
    """Return batches of some passes, plain and served, and what served them in the end."""
    found = []
    for serve in (False, True):
        torch.manual_seed(1)
        loader = DataLoader(data(), batch_size=3, shuffle=True, **named)
        server = LoaderServer(loader, CachePolicy(MemoryBudget(10**8))) if serve else None
        batches = []
        for at in range(number):
            change_of = change(at)
            if change_of is not None:
                change_of(loader.dataset)
            batches += list(server.walk(loader, iter) if server is not None else loader)
        found.append((batches, torch.get_rng_state()))
    (plain, state), (served, after) = found
    assert torch.equal(state, after)
    assert len(plain) == len(served)
    for one, other in zip(plain, served, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    return server


def test_rows_are_kept_in_the_first_pass_and_gathered_from_the_second_on():
    server = passes(Rows)
    assert type(server.strategy) is KeptRows
    assert (server.served, server.num_passes) == (6, 3)


@pytest.mark.parametrize("operations", [(), (T.RandomHorizontalFlip(0.5),)], ids=["the same", "random"])
def test_batches_are_made_by_kernels_from_the_first_pass_on(operations):
    server = passes(lambda: Images(*operations))
    assert type(server.strategy) is BatchCompiled
    assert server.served == 9


def test_after_a_change_between_passes_everything_is_looked_at_anew():
    server = passes(Rows, 4, lambda at: (lambda data: setattr(data, "scale", 2.0)) if at == 2 else None)
    assert type(server.strategy) is KeptRows
    assert server.served == 6  # in the second pass, and the fourth


def test_a_data_set_that_changes_from_pass_to_pass_is_left():
    server = passes(Rows, 5, lambda at: lambda data: setattr(data, "scale", float(at + 1)))
    assert type(server.strategy) is Passthrough
    assert server.reason.startswith("Rows changes from pass to pass: ")
    assert server.changed == ""


def test_a_change_within_a_pass_is_followed_at_once():
    loader = DataLoader(Rows(), batch_size=3)
    server = LoaderServer(loader, CachePolicy(MemoryBudget(10**8)))
    list(server.walk(loader, iter))
    walked = server.walk(loader, iter)
    next(walked)
    assert server.stands()
    loader.dataset.scale = 5.0
    assert next(walked)[0].tolist() == [15.0, 20.0, 25.0]
    assert not server.stands()
    assert "Rows.scale" in server.changed
    assert server.as_plain(torch.tensor([1]))[0].tolist() == [5.0]


def test_a_kernel_that_fails_leaves_the_batch_to_the_script_with_the_same_numbers(monkeypatch):
    def fail(*_):
        torch.rand(3)
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("flatout.pipeline.cache.row_cache.RowCache.take", fail)
    server = passes(lambda: Images(T.RandomHorizontalFlip(0.5)), 1)
    assert server.reason == "making whole batches raised RuntimeError"
