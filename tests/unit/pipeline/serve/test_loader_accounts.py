"""What is said of each loader at the end of a training: what came from memory, and why the rest did not."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from flatout.loader_account import LoaderAccount
from flatout.pipeline.serve.compiled_loader import LoaderCaches


class Ticks(Dataset):
    def __init__(self):
        self.values = torch.arange(24.0).tolist()

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor([self.values[index], 1.0])


class Jittered(Ticks):
    def __getitem__(self, index):
        return super().__getitem__(index) + torch.randn(2)


def walk(kept, loader, passes):
    return [list(kept.walk(loader, DataLoader.__iter__)) for _ in range(passes)]


def caches(told=None):
    return LoaderCaches(where=lambda: "train.py:7", tell=None if told is None else told.append)


def test_batches_from_memory_are_counted_by_data_set_and_line():
    kept = caches()
    walk(kept, DataLoader(Ticks(), batch_size=6), 3)
    assert kept.accounts.all() == [LoaderAccount("Ticks", "train.py:7", passes=3, batches=8)]
    assert str(kept.accounts.all()[0]) == "Ticks at train.py:7, 3 passes: 8 batches from memory"


def test_the_first_pass_says_that_it_fills_and_another_that_it_was_left_early():
    kept, loader = caches(), DataLoader(Ticks(), batch_size=6)
    next(iter(kept.walk(loader, DataLoader.__iter__)))
    assert str(kept.accounts.all()[0]).endswith(": kept in the first pass, served from the second on")
    next(iter(kept.walk(loader, DataLoader.__iter__)))
    assert str(kept.accounts.all()[0]).endswith("0 batches from memory: no pass has delivered all of its samples yet")


def test_what_changes_between_passes_is_named_at_the_end_and_as_soon_as_it_is_known():
    told = []
    kept, data = caches(told), Ticks()
    loader = DataLoader(data, batch_size=6)
    for number in range(5):
        data.values = [float(number)] * 24
        walk(kept, loader, 1)
    (account,) = kept.accounts.all()
    assert (account.passes, account.batches) == (5, 0)
    assert "Ticks changes from pass to pass" in account.reason
    assert len(told) == 1  # once, and not in each pass
    assert "Ticks changes from pass to pass" in told[0]


def test_a_change_at_every_pass_stands_back_before_it_is_given_up():
    kept, data = caches(), Ticks()
    loader = DataLoader(data, batch_size=6)
    for number in range(3):
        data.values = [float(number)] * 24
        walk(kept, loader, 1)
        (account,) = kept.accounts.all()
        assert account.changes == number
        assert bool(account.stands_back) == (number > 0)
    assert "Ticks changes from pass to pass" in account.stands_back
    walk(kept, loader, 2)  # it settles: one change in four passes
    (account,) = kept.accounts.all()
    assert (account.changes, account.passes, account.stands_back) == (2, 5, "")


@pytest.mark.parametrize(("purpose", "looking_s", "served"), [("run", 0.0, 20), ("run", 9.0, 12), ("verify", 9.0, 20)])
def test_arrays_that_are_drawn_anew_are_served_as_they_are_where_a_look_is_short(purpose, looking_s, served):
    data = TensorDataset(torch.zeros(24, 3))
    loader = DataLoader(data, batch_size=6)
    kept = LoaderCaches(where=lambda: "train.py:7", purpose=purpose)
    for _ in range(5):
        data.tensors = (torch.randn(24, 3),)
        batches = [batch for (batch,) in kept.walk(loader, DataLoader.__iter__)]
        assert torch.equal(torch.cat(batches), data.tensors[0])
        kept.of(loader)._looked_s = looking_s
        kept.of(loader)._walked_at -= 1.0  # the pass took a second
    (account,) = kept.accounts.all()
    assert account.batches == served
    assert account.changes >= 3
    assert bool(account.stands_back) == (served < 20)


def test_nothing_is_told_where_another_loader_is_served():
    told = []
    kept = caches(told)
    walk(kept, DataLoader(Ticks(), batch_size=6), 2)
    walk(kept, DataLoader(Jittered(), batch_size=6), 4)
    assert told == []
    assert [each.reason != "" for each in kept.accounts.all()] == [False, True]


def test_data_sets_that_are_made_anew_for_each_pass_are_one_line():
    kept = caches()
    for _ in range(5):
        walk(kept, DataLoader(Ticks(), batch_size=6), 1)
    (account,) = kept.accounts.all()
    assert account.passes == 5
    assert "made anew for each pass" in str(account)


def test_ranks_that_walk_one_line_side_by_side_are_one_account():
    ours = LoaderAccount("Ticks", "train.py:7", passes=3, batches=8)
    other = LoaderAccount("Ticks", "train.py:7", passes=3, batches=6, reason="it changes")
    assert ours.beside(other) == LoaderAccount("Ticks", "train.py:7", passes=3, batches=14, reason="it changes")


@pytest.mark.parametrize("number", [1, 2])
def test_samples_that_are_kept_one_by_one_are_told_as_samples(number):
    account = LoaderAccount("Ticks", passes=number, samples=12)
    assert str(account) == f"Ticks, {number} pass{'es' * (number > 1)}: 12 samples from memory"
