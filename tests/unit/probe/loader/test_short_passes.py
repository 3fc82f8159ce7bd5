"""Passes end early where results are compared, whatever makes the batches, and every execution ends the same ones."""

from threading import Thread, get_ident

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from flatout.pipeline.serve.compiled_loader import LoaderCaches
from flatout.probe.core.seams import Seams
from flatout.probe.loader.short_passes import ShortPasses
from flatout.probe.verify.traces import TraceWatch


@pytest.fixture
def ending():
    """Return what ends the passes of this thread after so many batches."""
    seams = Seams()

    def end(num_batches, first_whole=False):
        ShortPasses(get_ident(), num_batches, first_whole=first_whole).install(seams)
        return seams

    yield end
    seams.undo()


class Counted(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(20.0))


ROWS = TensorDataset(torch.arange(20.0)[:, None], torch.arange(20))
LOADERS = {
    "plain": lambda: DataLoader(ROWS, batch_size=2, shuffle=True),
    "workers": lambda: DataLoader(ROWS, batch_size=2, num_workers=1),
    "workers stay": lambda: DataLoader(ROWS, batch_size=2, num_workers=1, persistent_workers=True),
    "stream": lambda: DataLoader(Counted(), batch_size=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOADERS)
def test_passes_end_after_so_many_batches(ending, kind):
    ending(3)
    loader = LOADERS[kind]()
    assert [len(list(loader)) for _ in range(3)] == [3, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOADERS)
def test_the_first_pass_may_be_a_whole_one(ending, kind):
    ending(3, first_whole=True)
    loader = LOADERS[kind]()
    assert [len(list(loader)) for _ in range(3)] == [10, 3, 3]


def test_batches_from_memory_end_alike():
    seams, kept = Seams(), LoaderCaches(purpose="verify")
    seams.wrap(
        "torch.utils.data.dataloader:DataLoader.__iter__",
        lambda original, hits: lambda loader: kept.walk(loader, original),
    )
    ShortPasses(get_ident(), 3, first_whole=False).install(seams)
    try:
        loader = DataLoader(ROWS, batch_size=2, shuffle=True)
        assert [len(list(loader)) for _ in range(3)] == [3, 3, 3]
        assert kept.accounts.all()[0].batches == 9
    finally:
        seams.undo()


def test_a_loader_that_is_shorter_ends_by_itself(ending):
    ending(30)
    assert [len(list(DataLoader(range(4), batch_size=2))) for _ in range(2)] == [2, 2]


def test_a_pass_that_has_ended_stays_at_its_end(ending):
    ending(1)
    batches = iter(DataLoader(range(8), batch_size=2))
    assert next(batches).tolist() == [0, 1]
    assert [next(batches, None) for _ in range(3)] == [None] * 3


def test_the_batches_are_those_of_a_whole_pass_up_to_there(ending):
    torch.manual_seed(5)
    whole = [batch.tolist() for batch in DataLoader(range(20), batch_size=2, shuffle=True)]
    ending(4)
    torch.manual_seed(5)
    assert [batch.tolist() for batch in DataLoader(range(20), batch_size=2, shuffle=True)] == whole[:4]


def test_what_notes_the_batches_sees_the_end(ending):
    seams = ending(2)
    trace = TraceWatch(get_ident(), lambda act: act())
    trace.install(seams)
    list(DataLoader(range(8), batch_size=2))
    events = trace.take()
    assert len(events["batches"]) == 2
    assert [end[:3] for end in events["ends"]] == [[0, 0, 2]]


def test_other_threads_walk_whole_passes(ending):
    ending(1)
    found = []
    thread = Thread(target=lambda: found.extend(DataLoader(range(8), batch_size=2)))
    thread.start()
    thread.join()
    assert len(found) == 4


def test_an_iterator_of_another_kind_keeps_its_attributes(ending):
    class Ahead:
        note = "its own"

        def __init__(self, inner):
            self.inner = iter(inner)

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.inner)

    seams = Seams()
    seams.wrap(
        "torch.utils.data.dataloader:DataLoader.__iter__",
        lambda original, hits: lambda loader: Ahead(list(original(loader))),
    )
    try:
        ShortPasses(get_ident(), 2, first_whole=False).install(seams)
        batches = iter(DataLoader(range(8), batch_size=2))
        assert batches.note == "its own"
        with pytest.raises(AttributeError, match="colour"):
            getattr(batches, "colour")  # noqa: B009
        assert len(list(batches)) == 2
    finally:
        seams.undo()


def test_the_pass_under_way_is_ended_when_that_is_asked_for():
    seams, short = Seams(), ShortPasses(get_ident())
    short.install(seams)
    try:
        assert not short.end_now(2)  # there is none
        loader, seen = DataLoader(range(40), batch_size=2), []
        for batch in loader:
            seen.append(batch)
            if len(seen) == 5:
                assert short.end_now(2)
        assert (len(seen), len(list(loader)), len(list(DataLoader(range(8))))) == (5, 2, 2)
    finally:
        seams.undo()


def test_of_several_passes_under_way_none_is_ended():
    seams, short = Seams(), ShortPasses(get_ident())
    short.install(seams)
    try:
        one, other = (iter(DataLoader(range(8), batch_size=2)) for _ in range(2))
        next(one), next(other)
        assert not short.end_now(2)
        assert (len(list(one)), len(list(other))) == (3, 3)
    finally:
        seams.undo()
