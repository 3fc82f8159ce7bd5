"""Numbers of workers in turns."""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from flatout.probe.benchmark.worker_trials import ROUNDS, numbers_to_try, try_workers, with_workers


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([index])


class OnlyAlone(Rows):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            raise ValueError("not in a worker")
        return torch.tensor([index])


def test_the_own_number_comes_first_and_none_half_and_all_cores_follow():
    assert numbers_to_try(3, 0.0, cores=8) == [3, 0, 4, 8]
    assert numbers_to_try(0, 0.0, cores=2) == [0, 1, 2]
    assert numbers_to_try(0, 0.9, cores=2) == [0, 1, 2, 4, 8]
    assert numbers_to_try(40, 0.9, cores=64) == [40, 0, 16]


def test_a_copy_with_workers_gives_the_same_batches_and_leaves_the_loader_alone():
    loader = DataLoader(Rows(), batch_size=8)
    with_two = with_workers(loader, 2)
    assert (with_two.num_workers, with_two.prefetch_factor, loader.num_workers) == (2, 2, 0)
    assert all(torch.equal(one, other) for one, other in zip(with_two, loader, strict=True))
    back = with_workers(DataLoader(Rows(), batch_size=8, num_workers=2, timeout=30, persistent_workers=True), 0)
    assert len(list(back)) == 8


def test_each_setting_is_tried_in_every_round():
    loader = DataLoader(Rows(), batch_size=8)
    found = try_workers(loader, [0, 1], 0.05, time.perf_counter() + 600)
    assert [(each.workers, each.own, each.samples_s.n) for each in found] == [(0, True, ROUNDS), (1, False, ROUNDS)]
    assert all(each.first_batch_s.n == ROUNDS for each in found)


def test_a_setting_that_fails_costs_that_setting_only():
    failed, works = try_workers(DataLoader(OnlyAlone(), batch_size=8), [1, 0], 0.05, time.perf_counter() + 600)
    assert failed.samples_s is None
    assert "ValueError" in failed.trouble
    assert works.samples_s is not None


def test_without_time_one_round_is_made():
    found = try_workers(DataLoader(Rows(), batch_size=8), [0], 0.05, 0.0)
    assert found[0].samples_s.n == 1
