"""Who reads the samples of a pass before their batches are due: threads, workers, or nobody."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from flatout.pipeline.inspect.repeated_proof import asked_again
from flatout.pipeline.read import prefetch
from flatout.pipeline.read.prefetch import asking, prefetch_for
from flatout.pipeline.read.thread_prefetcher import ThreadPrefetcher
from flatout.pipeline.serve.decision import Reading


class Rows(Dataset):
    def __init__(self, held=None):
        self.held = held

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(index)


COMPILER = SimpleNamespace(reader=lambda: lambda index: index, source=SimpleNamespace(place=0), stage=1)


def kept(**named):
    return SimpleNamespace(**{"full": False, "direct": False, "compiler": COMPILER, "store": None, **named})


@pytest.fixture
def workers(monkeypatch):
    """Says whether workers can read, and what they would be given."""
    can = SimpleNamespace(read=True, given=[])
    monkeypatch.setattr(prefetch, "can_read", lambda loader, source: can.read)
    monkeypatch.setattr(prefetch, "WorkerReader", lambda *given: can.given.append(given) or "workers")
    return can


def chosen(reading, rows=None, dataset=None, *, timing=False):
    found = prefetch_for("loader", dataset or Rows(), reading, rows or kept(), 1, timing)
    kind = type(found).__name__ if not isinstance(found, str | None) else found
    if isinstance(found, ThreadPrefetcher):
        found.end()
    return kind


@pytest.mark.parametrize(
    ("reading", "rows", "who"),
    [
        (Reading(), {}, None),
        (Reading(in_flight=4), {}, "ThreadPrefetcher"),
        (Reading(in_flight=4), {"full": True}, None),  # all is there
        (Reading(in_flight=4), {"full": True, "direct": True}, None),
        (Reading(threads=2), {}, "ThreadPrefetcher"),
        (Reading(threads=2), {"full": True, "direct": True}, "ThreadPrefetcher"),
        (Reading(threads=2), {"full": True}, None),
        (Reading(threads=2), {"compiler": None}, None),
        (Reading(workers=True), {}, "workers"),
        (Reading(workers=True, threads=2), {"compiler": None}, None),
    ],
)
def test_who_reads_ahead(workers, reading, rows, who):
    assert chosen(reading, kept(**rows)) == who


def test_a_data_set_that_has_opened_a_file_stays_here(workers, tmp_path):
    with (tmp_path / "rows.bin").open("wb") as file:
        assert chosen(Reading(threads=2), dataset=Rows(iter([file]))) is None


def test_workers_that_cannot_read_and_those_of_a_trial_do_not(workers):
    assert chosen(Reading(workers=True, threads=2), timing=True) == "ThreadPrefetcher"
    workers.read = False
    assert chosen(Reading(workers=True, threads=2)) == "ThreadPrefetcher"
    assert chosen(Reading(workers=True)) is None


def test_workers_write_where_rows_lie_only_where_that_is_shared(workers):
    class Store:
        def take(self, indices, place):
            assert len(indices) == 0
            return {0: torch.ones(2)}  # not a view of rows that several processes have

    chosen(Reading(workers=True), kept(store=Store(), in_common=False))
    compiler = SimpleNamespace(**{**vars(COMPILER), "stage": 0})
    chosen(Reading(workers=True), kept(store=Store(), in_common=True, compiler=compiler))
    chosen(Reading(workers=True), kept(store=Store(), in_common=True))
    assert [given[2] for given in workers.given] == [None, None, None]


def test_samples_that_wait_are_asked_for_at_once_and_others_in_turn():
    assert asking(Reading(), 1) is asked_again
    at_once = asking(Reading(in_flight=2), 1)
    assert [int(sample) for sample in at_once(Rows(), [3, 1])] == [3, 1]
