"""Workers for loaders that had none, or another number of them: the same batches, the same random streams.

Modules: flatout.torch_loader.handover, flatout.torch_loader.worker_resizing.
"""

import copy
import functools
import multiprocessing
import multiprocessing.synchronize
import os
import random
import signal
import time
from dataclasses import replace

import numpy
import pytest
import torch
from tests.unit.fixes.inputs import Counting, Drawing, Failing, OwnGenerator, Rows, passes
from tests.unit.fixes.training import under
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SubsetRandomSampler, WeightedRandomSampler

from flatout.fixes.loader_workers import choices
from flatout.schema.run import Environment, Header, LoaderFacts, Run, SamplePrefix
from flatout.watch.dataset_state import parts, same, unsafe

pytestmark = pytest.mark.slow

SETTINGS = [{"workers": 1}, {"workers": 2}, {"workers": 2, "persistent": True}]


def walk(make, **options):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return passes(make(), **options)


def compare(make, settings, **options):
    """Return the hits of a fix that leaves what the script sees, and its random streams, as they are."""
    plain = walk(make, **options)
    with under("loader-workers", **settings) as process:
        ours = walk(make, **options)
        assert same(ours, plain)
        assert not process.site.failure
        return process.site.hits.get("DataLoader", 0)


def loader(dataset=Rows, **options):
    options = {"batch_size": 4, "shuffle": True} | options
    return lambda: DataLoader(dataset(), **options)


def with_generator(**options):
    return DataLoader(Rows(), 4, shuffle=True, generator=torch.Generator().manual_seed(5), **options)


# -- loaders without workers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_workers_deliver_the_same_batches_and_no_random_stream_moves(settings):
    assert compare(loader(), settings) > 20


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_last_batch_that_is_smaller_and_a_generator_of_the_script_are_kept(settings):
    assert compare(loader(lambda: Rows(42)), settings) > 20
    assert compare(with_generator, settings) > 20


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_pass_that_is_broken_off_leaves_the_generator_where_the_script_left_it(settings):
    generators = []

    def make():
        made = with_generator()
        generators.append(made.generator)
        return made

    compare(make, settings, epochs=2, stop_at=9)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random, numpy.random.rand])
def test_a_data_set_that_draws_random_numbers_may_be_left_alone(draw):
    assert compare(loader(functools.partial(Drawing, draw=draw)), {"workers": 2, "predicted": False}) == 0
    assert compare(loader(functools.partial(Drawing, draw=draw)), {"workers": 2}) > 0


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random, numpy.random.rand])
def test_a_batch_that_begins_to_draw_later_is_made_in_the_training_process_at_its_moment(draw):
    make = loader(functools.partial(Drawing, since=30, draw=draw), shuffle=False)
    assert 0 < compare(make, {"workers": 2}) < 10


def test_data_sets_that_change_are_left_alone_and_those_that_hold_a_generator_may_be():
    assert compare(loader(Counting), {"workers": 2}) == 0
    assert compare(loader(OwnGenerator), {"workers": 2, "predicted": False}) == 0


def test_an_error_of_the_data_set_comes_at_its_batch_as_the_script_knows_it():
    def until_error():
        seen = []
        with pytest.raises(KeyError) as caught:
            seen.extend(batch for batch in DataLoader(Failing(), 4))
        return caught.value.args, caught.value.__context__

    with under("loader-workers", workers=2) as process:
        assert until_error() == (("sample 21",), None)
        assert process.site.hits["DataLoader"] == 1  # the one batch between the proof and the error


@pytest.mark.full
def test_a_worker_that_is_killed_is_replaced_by_the_training_process_and_raises_nothing():
    plain = walk(loader(shuffle=False), epochs=1)
    with under("loader-workers", workers=1) as process:
        torch.manual_seed(0)
        random.seed(0)
        seen = []
        for number, batch in enumerate(DataLoader(Rows(), 4)):
            seen.append((batch, float(torch.rand(())), random.random()))
            if number == 4:
                worker = multiprocessing.active_children()[0]
                worker.kill()
                worker.join()  # the moment at which torch would raise from its signal handler
                time.sleep(0.05)
        assert process.site.hits["DataLoader"] >= 1
    assert same(seen, plain)


def test_a_worker_that_is_killed_while_it_looks_whether_to_end_leaves_no_lock_that_training_waits_for(monkeypatch):
    here, looks = os.getpid(), multiprocessing.synchronize.Event.is_set

    def killed(event):
        if os.getpid() != here:
            event._cond.acquire()
            os.kill(os.getpid(), signal.SIGKILL)
        return looks(event)

    monkeypatch.setattr(multiprocessing.synchronize.Event, "is_set", killed)
    assert compare(loader(shuffle=False), {"workers": 1}) > 0


def test_workers_that_stay_begin_anew_when_the_script_changes_the_data_set():
    class Scaled(Rows):
        scale = 1.0

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x * self.scale, y

    def run():
        dataset = Scaled()
        made = DataLoader(dataset, 4)
        seen = []
        for epoch in range(3):
            dataset.scale = float(epoch)
            seen += list(made)
        return seen

    plain = run()
    with under("loader-workers", workers=2, persistent=True) as process:
        assert same(run(), plain)
        assert process.site.hits["DataLoader"] > 20


def test_two_passes_at_once_over_one_loader_do_not_disturb_each_other():
    def run():
        made = DataLoader(Rows(), 4)
        list(made)
        return list(zip(made, made, strict=True))

    plain = run()
    with under("loader-workers", workers=1, persistent=True):
        assert same(run(), plain)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))


class OddSampler:
    def __iter__(self):
        return (index for index in range(40) if random.random() < 0.9)

    def __len__(self):
        return 40


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Stream(), 4),
        lambda: DataLoader(Rows(), 4, sampler=OddSampler()),
        lambda: DataLoader(Rows(8), 4),
        lambda: DataLoader(list(range(40)), 4),
    ],
    ids=["iterable", "a sampler of the script", "short", "cheap"],
)
def test_loaders_that_workers_cannot_serve_equally_or_gainfully_are_left_alone(make):
    assert compare(make, {"workers": 2}) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Rows(), 4, sampler=SubsetRandomSampler(range(30))),
        lambda: DataLoader(Rows(), 4, sampler=WeightedRandomSampler([1.0] * 40, 40)),
        lambda: DataLoader(Rows(), batch_sampler=BatchSampler(range(40), 4, drop_last=False)),
        lambda: DataLoader(Rows(slow_s=0.002), batch_size=None),
        lambda: DataLoader(Rows(), 4, collate_fn=list),
    ],
    ids=["subset", "weighted", "batch sampler", "samples", "collate"],
)
@pytest.mark.few(3)
def test_samplers_of_torch_and_other_ways_to_batch_are_served(make):
    assert compare(make, {"workers": 2}) > 10


# -- loaders with workers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": 2}], ids=str)
def test_another_number_of_workers_delivers_the_same(settings):
    assert compare(loader(num_workers=1), settings) == 30


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": 2}], ids=str)
@pytest.mark.parametrize("since", [0, 30])
def test_a_data_set_that_draws_gets_the_workers_it_had_with_the_streams_they_had(settings, since):
    make = loader(functools.partial(Drawing, since=since), shuffle=False, num_workers=1)
    assert compare(make, settings) <= 7


def test_fewer_workers_than_there_are_and_an_init_that_does_more_than_seeding_are_left_alone():
    assert compare(loader(num_workers=2), {"workers": 1}) == 0
    assert compare(loader(num_workers=1, worker_init_fn=_does_more), {"workers": 2}) == 0
    assert compare(loader(num_workers=1, worker_init_fn=_seeds), {"workers": 2}) == 30


def _seeds(worker_id):
    numpy.random.seed(torch.initial_seed() % 2**32)


def _does_more(worker_id):
    torch.utils.data.get_worker_info().dataset.length = 40


# -- what a data set holds ------------------------------------------------------------------------------------------


def test_handles_generators_and_iterators_are_found_wherever_a_data_set_keeps_them(tmp_path):
    dataset = Rows()
    assert unsafe(dataset, lambda batch: batch) == ""
    with open(tmp_path / "data", "wb") as file:
        for held, reason in (
            (file, "holds an open file"),
            ([{"inner": file}], "holds an open file"),
            (random.Random(1), "draws from a random generator of its own"),
            (numpy.random.default_rng(1), "draws from a random generator of its own"),
            (functools.partial(print, torch.Generator()), "draws from a random generator of its own"),
            (iter([1]), "walks an iterator of its own"),
            (torch.empty(1, device="meta"), "holds a tensor on meta"),
            (functools.partial(_seeds, 3), ""),
        ):
            dataset = copy.copy(dataset)
            dataset.held = held
            assert unsafe(dataset) == (f"Rows {reason}" if reason else "")


def test_looking_into_a_data_set_ends_with_loops_and_large_containers():
    dataset = Rows()
    dataset.itself, dataset.many = dataset, list(range(10**6))
    assert len(list(parts(dataset))) < 200


# -- what is offered ------------------------------------------------------------------------------------------------

LOADER = LoaderFacts(is_training=True, sample_s=0.02, sample_cpu_s=0.02, wait_s=0.02, fetches=10, epochs_started=1)


def offered(loader, cores=8):
    return choices(Run(header=Header(script="a"), environment=Environment(num_cpus=cores), loaders=(loader,)))


def test_as_many_workers_as_cores_come_first_and_they_stay_where_epochs_are_short():
    assert [each["workers"] for each in offered(LOADER)] == [8, 4, 2]
    assert [each["workers"] for each in offered(LOADER, cores=2)] == [2, 1]
    assert [each["persistent"] for each in offered(replace(LOADER, epochs_started=3), cores=1)] == [True]


def test_samples_that_wait_get_more_workers_than_cores():
    assert offered(replace(LOADER, sample_cpu_s=0.001), cores=2)[0]["workers"] == 8


def test_workers_that_harm_are_offered_none_and_no_more():
    assert offered(replace(LOADER, num_workers=2, wait_s=0.05)) == ({"workers": 0},)


def test_random_samples_are_made_by_predicted_streams_where_there_are_no_workers():
    random_set = replace(LOADER, prefix=SamplePrefix(checked=4, deterministic=False))
    assert offered(random_set, cores=1) == ({"workers": 1, "persistent": False, "predicted": True},)
    same_each_time = replace(LOADER, prefix=SamplePrefix(checked=4, deterministic=True))
    assert offered(same_each_time, cores=1) == ({"workers": 1, "persistent": False},)
    assert offered(replace(random_set, num_workers=2)) == ()


def test_one_process_is_offered_for_a_stream_that_has_no_workers():
    stream = replace(LOADER, iterable_style=True)
    assert offered(stream) == ({"workers": 1, "persistent": False, "predicted": True},)
    assert offered(replace(stream, num_workers=2)) == ()


def test_nothing_is_offered_for_loaders_with_enough_workers():
    assert offered(replace(LOADER, num_workers=8)) == ()
    assert offered(replace(LOADER, is_training=False)) == ()
