"""`compile_loader` around loaders that are made anew: what is kept belongs to the data set, as under the fix."""

import gc
import weakref

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader


class Rows(Dataset):
    def __init__(self, start=0.0, number=12):
        self.rows = torch.arange(2.0 * number).reshape(number, 2) + start

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] * 2


def walked(dataset, **options):
    return torch.cat(list(compile_loader(DataLoader(dataset, batch_size=4), **options)))


def served(dataset, **options):
    loader = compile_loader(DataLoader(dataset, batch_size=4), **options)
    return loader._kept.of(loader._plain).served


def test_a_loader_made_anew_for_each_epoch_is_served_what_the_one_before_has_kept():
    stays = Rows()
    for _ in range(5):
        assert torch.equal(walked(stays), 2 * stays.rows)
    assert served(stays) == 4 * 3


def test_other_arguments_are_kept_apart(tmp_path):
    stays = Rows()
    walked(stays)
    walked(stays)
    assert served(stays) == 3
    assert served(stays, max_bytes=10**6) == served(stays, folder=tmp_path) == 0


def test_memory_is_for_all_that_are_compiled_with_it_together():
    first, second = Rows(), Rows(7.0)
    for each in (first, second, first, second):
        assert torch.equal(walked(each, max_bytes=150), 2 * each.rows)
    assert served(first, max_bytes=150) == 3
    loader = compile_loader(DataLoader(second, batch_size=4), max_bytes=150)
    assert "54 B fit into the memory budget" in loader.explain()


def test_what_is_kept_goes_with_the_data_set():
    stays = Rows(number=1000)
    walked(stays)
    loader = compile_loader(DataLoader(stays, batch_size=4))
    list(loader)
    kept = weakref.ref(loader._kept.of(loader._plain).kept_rows)
    budget = loader._kept._policy.budget
    before = budget.left
    del stays, loader
    gc.collect()
    assert kept() is None
    assert budget.left > before


@pytest.mark.slow
def test_data_sets_that_are_made_anew_are_left_alone_after_two():
    for epoch in range(2):
        walked(Rows(epoch))
        gc.collect()
    last = Rows(9.0)
    assert torch.equal(walked(last), 2 * last.rows)
    loader = compile_loader(DataLoader(last, batch_size=4))
    assert not loader._kept._caches  # nobody looked at it
    assert torch.equal(torch.cat(list(loader)), 2 * last.rows)
    list(loader)
    assert loader._kept.of(loader._plain).served == 3  # it stays after all
