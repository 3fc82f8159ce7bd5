"""Workers that stay: batches and random streams, the workers' own included, as if they had been started anew.

Modules: flatout.torch_loader.kept_workers.
"""

import functools
import random

import numpy
import pytest
import torch
from tests.unit.fixes.inputs import Counting, Drawing, OwnGenerator, Rows, passes
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, IterableDataset

from flatout.fixes.persistent_workers import choices
from flatout.schema.run import Header, LoaderFacts, Run
from flatout.torch_loader.reseeding import only_seeds
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow


def walk(make, **options):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return passes(make(), **options)


def compare(make, **options):
    """Return how often workers stayed; what the script sees, and its random streams, are as they were."""
    plain = walk(make, **options)
    with under("persistent-workers") as process:
        ours = walk(make, **options)
        assert same(ours, plain)
        return process.site.hits.get("DataLoader", 0)


def loader(dataset=Rows, **options):
    return lambda: DataLoader(dataset(), **{"batch_size": 4, "shuffle": True, "num_workers": 2} | options)


class Eager:
    """A sampler that draws as soon as it is asked for an iterator."""

    def __iter__(self):
        return iter(torch.randperm(40).tolist())

    def __len__(self):
        return 40


class Opening(Rows):
    """Opens what it reads with the first sample, in each worker."""

    file = None

    def __getitem__(self, index):
        self.file = self.file or open("/dev/null")  # noqa: SIM115 - as data sets do
        return super().__getitem__(index)


def _seeds(worker_id):
    numpy.random.seed(torch.initial_seed() % 2**32)


def _scales(worker_id):
    torch.utils.data.get_worker_info().dataset.length = 40


@pytest.mark.parametrize(
    "make",
    [
        loader(),
        loader(num_workers=1),
        loader(lambda: Rows(42)),
        loader(Opening),
        loader(shuffle=None, sampler=Eager()),
        loader(generator=torch.Generator().manual_seed(3)),
    ],
    ids=["plain", "one worker", "smaller last batch", "lazy file", "eager sampler", "generator"],
)
@pytest.mark.few(3)
def test_workers_stay_and_nothing_shows_it(make):
    state = make().generator.get_state() if make().generator else None
    plain = walk(make)
    if state is not None:
        make().generator.set_state(state)
    with under("persistent-workers") as process:
        assert same(walk(make), plain)
        assert process.site.hits == {"DataLoader": 2}


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random, numpy.random.rand])
@pytest.mark.parametrize("init", [None, _seeds])
@pytest.mark.few(2)
def test_random_numbers_in_the_workers_are_those_of_workers_started_anew(draw, init):
    assert compare(loader(functools.partial(Drawing, draw=draw), worker_init_fn=init)) == 2


def test_a_pass_that_is_broken_off_is_followed_by_one_as_ever():
    assert compare(loader(Drawing), stop_at=3) == 2


def test_workers_are_started_anew_where_the_data_set_changed():
    assert compare(loader(Counting)) == 0


def test_generators_of_the_data_set_and_an_init_that_does_more_are_left_alone():
    assert compare(loader(OwnGenerator)) == 0
    assert compare(loader(worker_init_fn=_scales)) == 0
    assert only_seeds(_seeds)
    assert not only_seeds(_scales)


def test_two_passes_at_once_have_workers_of_their_own():
    def run():
        torch.manual_seed(0)
        made = DataLoader(Drawing(), 4, num_workers=1)
        return list(zip(made, made, strict=True))

    plain = run()
    with under("persistent-workers"):
        assert same(run(), plain)


def test_it_is_offered_where_workers_were_restarted():
    restarted = LoaderFacts(is_training=True, num_workers=2, epochs_started=3)
    once = LoaderFacts(is_training=True, num_workers=2, epochs_started=1)
    stays = LoaderFacts(is_training=True, num_workers=2, epochs_started=3, persistent_workers=True)
    given = [choices(Run(header=Header(script="a"), loaders=(one,))) for one in (restarted, once, stays)]
    assert given == [({},), (), ()]


class Sharded(IterableDataset):
    """Each worker reads a part, of another length; what it draws is of its own stream."""

    def __init__(self, draw=random.random):
        self.draw = draw

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for number in range(info.id, 30 + 9 * info.id, info.num_workers):
            yield torch.arange(3.0) * number + self.draw(), info.id


class ShuffledShards(Sharded):
    """Shuffles as `iter()` is called."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        order = list(range(info.id, 40, info.num_workers))
        random.shuffle(order)
        return map(torch.tensor, order)


class CountingShards(Sharded):
    passes = 0

    def __iter__(self):
        self.passes += 1
        for x, number in super().__iter__():
            yield x + self.passes, number


def streamed(dataset, **options):
    return loader(dataset, **{"shuffle": None} | options)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("dataset", [Sharded, ShuffledShards])
@pytest.mark.few(3)
def test_workers_of_a_stream_stay_and_each_reads_its_part_anew(dataset, workers):
    assert compare(streamed(dataset, num_workers=workers)) == 2


@pytest.mark.parametrize("options", [{"batch_size": None}, {"drop_last": True}, {"worker_init_fn": _seeds}])
def test_workers_of_a_stream_stay_whatever_a_batch_is(options):
    assert compare(streamed(functools.partial(Sharded, numpy.random.rand), **options)) == 2


def test_passes_over_a_stream_that_are_broken_off_are_followed_by_ones_as_ever():
    assert compare(streamed(Sharded), epochs=4, stop_at=2) == 3


def test_a_stream_that_counts_its_passes_has_new_workers_each_time():
    assert compare(streamed(CountingShards)) == 0


def test_a_stream_is_begun_in_its_workers_alone():
    begun = []

    class Noting(Sharded):
        def __iter__(self):
            begun.append(torch.utils.data.get_worker_info() is None)
            return super().__iter__()

    with under("persistent-workers"):
        walk(streamed(Noting))
    assert not begun


def test_workers_stay_while_a_log_grows_that_they_have_open(tmp_path):
    """As where a training's output goes to a file."""
    made = loader()()
    with (tmp_path / "train.log").open("w") as log, under("persistent-workers") as process:
        for _ in range(4):
            log.write("a pass begins\n" * 1000)
            log.flush()
            list(made)
    assert process.site.hits.get("DataLoader", 0) == 3
