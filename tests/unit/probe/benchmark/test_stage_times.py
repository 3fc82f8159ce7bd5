"""Parts of a batch."""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from flatout.probe.benchmark.stage_times import StageTimes, time_stages, without_workers
from flatout.schema.facts import Frame
from flatout.schema.phase import Phase
from flatout.schema.run import LineCost


class Slow(Dataset):
    def __init__(self, sample_s=0.002):
        self.sample_s = sample_s

    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return torch.tensor([index, index])


def slow_collate(samples):
    time.sleep(0.04)
    return torch.stack(samples)


def stages_of(loader, batches=6):
    return time_stages(loader, batches, time.perf_counter() + 60, len)


def test_each_part_has_its_share_and_the_loader_is_as_it_was():
    loader = DataLoader(Slow(), batch_size=4, num_workers=2, collate_fn=slow_collate, persistent_workers=True)
    before = dict(vars(loader))
    times = stages_of(loader)
    assert vars(loader) == before
    assert times.count == 6  # of passes of three batches
    assert times.samples == 24
    shares = {stage.name: stage.share for stage in times.stages()}
    assert set(shares) == {"sampler", "fetch", "collate"}
    assert min(shares["collate"], shares["fetch"]) > shares["sampler"]
    assert abs(sum(shares.values()) - 1) < 1e-6
    assert times.made_ms().median >= 20
    assert times.waiting() > 0.3


def test_loaders_without_automatic_batches_and_streams_are_timed_too():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(8).split(2))

    assert stages_of(DataLoader(Slow(0.0), batch_size=None), 3).count == 3
    assert stages_of(DataLoader(Stream(), batch_size=2), 3).count == 3


def test_an_empty_data_set_ends():
    assert stages_of(DataLoader([], batch_size=2)).count == 0


def test_time_that_passes_before_the_first_batch_costs_no_batch():
    assert time_stages(DataLoader(Slow(0.0), batch_size=4), 5, 0.0, len).count == 1


def test_lines_are_counted_where_they_are_innermost_and_without_those_that_led_here():
    def cost(line, seconds, samples=9, file="/me/data.py"):
        stack = (Frame(file, line, "get"), Frame("/me/train.py", 1, "main"))
        return LineCost(process="main", phase=Phase.INPUT, stack=stack, seconds=seconds, samples=samples)

    led_here = LineCost(
        process="main", phase=Phase.INPUT, stack=(Frame("/me/train.py", 1, "main"),), seconds=1.0, samples=9
    )
    times = StageTimes(costs=(cost(3, 2.0), cost(5, 1.0), cost(3, 1.0), cost(9, 1.0, samples=2), led_here))
    times.outside = frozenset({("/me/train.py", 1, "main")})
    assert [(line.place.line, line.share) for line in times.lines()] == [(3, 0.5), (5, 1 / 6)]


def test_the_own_lines_of_a_data_set_are_found():
    class Busy(Slow):
        def __getitem__(self, index):
            total = sum(number * number for number in range(30_000))
            return torch.tensor([index, total % 7])

    lines = stages_of(DataLoader(Busy(), batch_size=4), 30).lines()
    assert lines
    assert "sum(number * number" in lines[0].code


def test_cores_could_give_what_their_processor_time_allows():
    times = StageTimes(made_s=[0.2] * 8, cpu_s=[0.1] * 8, samples=64)
    assert times.cores_samples_s(4).median == 4 * 8 / 0.1
    assert StageTimes().cores_samples_s(4) is None


def test_waiting_for_a_core_is_no_waiting():
    assert StageTimes(made_s=[1.0, 1.0], cpu_s=[0.5, 0.5], queued_s=0.6).waiting() == pytest.approx(0.2)


def test_the_copy_without_workers_is_a_loader_of_one_process():
    alone = without_workers(DataLoader(Slow(), batch_size=4, num_workers=2, timeout=5, multiprocessing_context="spawn"))
    assert (alone.num_workers, alone.timeout, alone.prefetch_factor) == (0, 0, None)
    assert len(list(alone)) == 3
