"""`flatout.measure_loader` as a program calls it."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

import flatout
from flatout.errors import UsageError
from flatout.probe.benchmark.loader_benchmark import measure_loader


class Noisy(Dataset):
    """Draws from every stream there is."""

    def __init__(self):
        self.own = np.random.default_rng(1)

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.rand(3) + random.random() + np.random.rand() + self.own.random() + index


def states(loader):
    streams = [random.getstate()[1], np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()]
    own = [loader.dataset.own.bit_generator.state["state"], loader.generator.get_state().numpy().tobytes()]
    return [*streams, *own]


def test_everything_random_stands_where_it_stood_and_the_next_pass_is_the_same():
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
    before = states(loader)
    found = flatout.measure_loader(loader, 12, max_s=3.0)
    assert states(loader) == before
    assert found.batches == 12
    assert (found.name, found.batch_size, found.workers) == ("Noisy", 8, 0)
    assert found.samples_s.n >= 1
    assert {stage.name for stage in found.stages} == {"sampler", "fetch", "collate"}
    assert found.settings[0].workers == 0
    assert found.best is not None
    assert "samples/s" in str(found)


def test_a_sampler_s_own_generator_is_put_back():
    generator = torch.Generator().manual_seed(5)
    sampler = RandomSampler(range(48), generator=generator)
    before = generator.get_state()
    measure_loader(DataLoader(Noisy(), batch_size=8, sampler=sampler), 4, max_s=0.5)
    assert torch.equal(generator.get_state(), before)


def test_kept_workers_of_a_pass_under_way_go_on_undisturbed():
    loader = DataLoader(torch.arange(64), batch_size=8, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    first = next(batches)
    measure_loader(loader, 4, max_s=0.5)
    assert torch.equal(torch.cat([first, *batches]), torch.arange(64))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(64))


def test_a_stream_is_measured_with_its_own_number_of_workers():
    found = measure_loader(DataLoader(Stream(), batch_size=8), 8, max_s=2.0)
    assert found.settings == ()
    assert any("a part of the stream" in note for note in found.notes)
    assert found.stages


class OwnIteration(DataLoader):
    def __iter__(self):
        return iter([torch.zeros(2, 3)] * 5)


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        ([torch.zeros(2, 3)] * 5, "list is no DataLoader of torch's"),
        (OwnIteration(Noisy()), "OwnIteration has an __iter__ of its own"),
    ],
)
def test_what_cannot_be_taken_apart_is_measured_as_a_whole(loader, why):
    found = measure_loader(loader, 10)
    assert (found.batches, found.stages, found.settings) == (10, (), ())
    assert found.notes == (f"only its speed was measured: {why}",)


def test_a_compiled_loader_is_measured_as_it_serves():
    loader = flatout.compile_loader(DataLoader(torch.utils.data.TensorDataset(torch.zeros(64, 3)), batch_size=8))
    found = measure_loader(loader, 10)
    assert found.batches == 10
    assert "flatout makes its batches" in found.notes[0]


class InWorkersOnly(Noisy):
    def __getitem__(self, index):
        return torch.tensor([torch.utils.data.get_worker_info().id, index])


def test_a_data_set_that_fails_without_workers_costs_the_parts_only():
    found = measure_loader(DataLoader(InWorkersOnly(), batch_size=8, num_workers=1), 8, max_s=6.0)
    assert found.stages == ()
    assert found.samples_s is not None
    assert any("as it fails without workers" in note for note in found.notes)
    assert next(each for each in found.settings if not each.workers).trouble
    assert found.best.workers >= 1


def test_what_the_loader_raises_comes_through():
    class Broken(Noisy):
        def __getitem__(self, index):
            raise KeyError("no such row")

    with pytest.raises(KeyError, match="no such row"):
        measure_loader(DataLoader(Broken(), batch_size=8))


@pytest.mark.parametrize("wrong", [iter([1]), 3, (number for number in range(3))])
def test_iterators_and_other_things_are_refused(wrong):
    with pytest.raises(UsageError, match="Give"):
        measure_loader(wrong)


def test_one_batch_is_too_few():
    with pytest.raises(UsageError, match="2 batches"):
        measure_loader([1, 2], 1)
