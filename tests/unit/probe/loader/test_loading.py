"""What a loader is, and what the recording saw of it."""

import gc
import inspect
from collections import UserDict

import numpy as np
import pytest
import torch
from tests.unit.probe.watched import BATCH, INPUT, MS, STEP, Data, Watch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, TensorDataset

from flatout.pipeline import compile_loader
from flatout.probe.loader.loading import batch_size, tensors_in
from flatout.schema.phase import Phase


@pytest.fixture
def w():
    with Watch() as watch:
        yield watch


def facts(w):
    return w.loading.describe(w.tracker.passes.trained)


def walk(loader):
    for _ in loader:
        pass


class Encoding(UserDict):
    """As transformers.BatchEncoding."""


X = torch.ones(3, 2)


@pytest.mark.parametrize(
    ("batch", "size", "count"),
    [
        (X, 3, 1),
        ((X, torch.zeros(3)), 3, 2),
        ({"a": [X], "b": {"c": torch.zeros(5)}}, 3, 2),
        (Encoding(ids=X), 3, 1),
        ((torch.tensor(1.0), X), 3, 2),
        ("text", 0, 0),
        (None, 0, 0),
        ([], 0, 0),
        (np.ones(3), 0, 0),
    ],
)
def test_the_tensors_of_a_batch(batch, size, count):
    assert batch_size(batch) == size
    assert len(list(tensors_in(batch))) == count


def test_a_batch_nested_in_itself_ends():
    endless = []
    endless.append(endless)
    assert list(tensors_in(endless)) == []


def test_a_loader_and_its_walks(w):
    loader = w.loader(5, shuffle=True)
    for _ in range(3):
        walk(loader)
    (found,) = facts(w)
    assert (found.name, found.batch_size, found.num_samples, found.num_batches) == ("Data", BATCH, 10, 5)
    assert (found.epochs_started, found.num_workers, found.is_training) == (3, 0, False)
    assert found.wait_s == pytest.approx(INPUT / 1000)
    assert (found.batch_dtypes, found.batch_bytes) == (("float32",), BATCH * 8)
    assert (found.default_collate, found.default_sampler, found.iterable_style) == (True, True, False)


def test_where_it_was_made_and_walked(w):
    loader = DataLoader(Data(w.clock, 4), batch_size=2)  # MADE
    for _ in loader:  # WALKED
        pass
    (found,) = facts(w)
    lines, first = inspect.getsourcelines(test_where_it_was_made_and_walked)
    places = [first + next(n for n, line in enumerate(lines) if f"# {text}" in line) for text in ("MADE", "WALKED")]
    assert [(found.created_at.file, found.created_at.line), (found.iterated_at.file, found.iterated_at.line)] == [
        (__file__, place) for place in places
    ]


ROWS = torch.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(("data", "served"), [(TensorDataset(ROWS), 4), (list(ROWS), 3)], ids=["made", "filled"])
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.slow
def test_every_pass_over_a_compiled_loader_is_one_whoever_makes_its_batches(w, data, served, device):
    plain = DataLoader(data, batch_size=BATCH)  # MADE
    loader = compile_loader(plain, device=device)
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(4):
        for batch in loader:  # WALKED
            w.train_on(model, optimizer, *tensors_in(batch))
        w.clock.spend(10)
    w.end()
    assert loader._kept.of(plain).served == 3 * served
    (found,) = facts(w)
    assert (found.epochs_started, found.num_batches, found.is_training) == (4, 3, True)
    lines, first = inspect.getsourcelines(test_every_pass_over_a_compiled_loader_is_one_whoever_makes_its_batches)
    places = [first + next(n for n, line in enumerate(lines) if f"# {text}" in line) for text in ("MADE", "WALKED")]
    assert [found.created_at.line, found.iterated_at.line] == places
    assert len(w.steps) == 12
    assert max(w.walls()) < STEP
    assert w.out(Phase.EPOCH_GAP) == 30
    assert [step.epoch for step in w.steps] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_loaders_that_were_never_walked_are_left_out(w):
    w.loader(3)
    walk(w.loader(4))
    assert [found.num_batches for found in facts(w)] == [4]


def test_a_loader_that_is_gone_is_still_described(w):
    walk(w.loader(4))
    gc.collect()
    (found,) = facts(w)
    assert (found.num_batches, found.epochs_started) == (4, 1)
    assert w.loading.loaders[0].ref() is None


def test_many_loaders_cost_bounded_memory(w):
    kept = w.loader(1)
    walk(kept)
    for _ in range(500):
        w.loader(1)
    assert len(w.loading.loaders) <= 202
    assert len(facts(w)) == 1


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (TensorDataset(torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64)), 6 * 16 + 6 * 8),
        (Subset(TensorDataset(torch.zeros(6, 4)), [0, 1]), 6 * 16),
        ([torch.zeros(4)] * 6, 0),
    ],
)
def test_what_lies_in_memory(w, dataset, expected):
    walk(DataLoader(dataset))
    assert facts(w)[0].in_memory_bytes == expected


def test_samplers_collates_and_streams_of_the_script_s_own(w):
    class Sampler(torch.utils.data.Sampler):
        def __iter__(self):
            return iter([3, 1])

    data = Data(w.clock, 6)
    walk(DataLoader(data, sampler=Sampler(), collate_fn=lambda batch: batch))
    table = TensorDataset(torch.zeros(6, 2))
    walk(DataLoader(table, sampler=BatchSampler(RandomSampler(table), 2, False), batch_size=None))
    walk(w.stream(3))
    own, batched, stream = facts(w)
    assert (own.default_sampler, own.default_collate) == (False, False)
    assert (batched.default_sampler, batched.batch_size) == (True, 0)
    assert (own.has_getitems, batched.has_getitems) == (False, True)  # the sampler's indices come all in one call
    assert (stream.iterable_style, stream.num_samples, stream.has_getitems) == (True, 0, False)


def test_a_subset_takes_batches_only_where_what_it_is_made_of_does(w):
    class Batched(TensorDataset):
        def __getitems__(self, indices):
            return [(X[indices],)]

    walk(DataLoader(Subset(TensorDataset(X), range(len(X))), batch_size=2))
    walk(DataLoader(Subset(Subset(Batched(X), range(len(X))), range(len(X))), batch_size=2))
    plain, batched = facts(w)
    assert (plain.has_getitems, batched.has_getitems) == (False, True)


def test_a_dataset_without_a_length(w):
    class Endless:
        def __getitem__(self, index):
            return X

        def __len__(self):
            raise TypeError("no length")

    walk(DataLoader(Endless(), sampler=[0, 1, 2]))
    (found,) = facts(w)
    assert (found.num_samples, found.num_batches) == (0, 3)


def test_an_error_in_the_dataset_reaches_the_script(w):
    class Broken(Data):
        def __getitem__(self, index):
            w.clock.spend(1)
            if index == 4:
                raise OSError("gone")
            return X

    model = w.model()
    optimizer = w.sgd(model)
    with pytest.raises(OSError, match="gone"):
        for x in DataLoader(Broken(w.clock, 9), batch_size=None):
            w.train_on(model, optimizer, x)
    for x in w.loader(3):
        w.train_on(model, optimizer, x)
    w.end()
    assert w.account.current != 0
    assert len(w.steps) == 7


def test_another_thread_s_loader_is_none_of_ours(w):
    import threading

    thread = threading.Thread(target=walk, args=(w.loader(4),))
    thread.start()
    thread.join()
    assert facts(w) == ()
    assert w.clock.ns == 4 * INPUT * MS
    assert w.tracker.open.source is None


def test_the_start_of_workers_is_counted(w):
    walk(w.loader(2, num_workers=1))
    (found,) = facts(w)
    assert (found.num_workers, found.start_method, found.prefetch_factor) == (1, "", 2)
    assert found.start_s == 0.0  # by the scripted clock
