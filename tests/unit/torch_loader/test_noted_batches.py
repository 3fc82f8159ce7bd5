"""What is noted of batches while the script's own iterator makes them: indices, draws, changes."""

import contextlib
import random

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch.utils.data._utils import worker

from flatout.torch_loader import noted_batches
from flatout.torch_loader.noted_batches import CheckedCollate, Flagged, NotedSampler, StrictCollate
from flatout.watch.forked_copy import ask_a_copy


def test_indices_are_noted_in_order_for_the_pass_begun_last():
    sampler = NotedSampler(BatchSampler(SequentialSampler(range(5)), 2, False))
    assert len(sampler) == 3
    first = iter(sampler)
    assert next(first) == [0, 1]
    second = iter(sampler)
    assert list(sampler.pending) == []
    assert [next(second), next(second)] == [[0, 1], [2, 3]]
    next(first)  # of a pass that is over
    assert list(sampler.pending) == [[0, 1], [2, 3]]


class DrawsAtOnce:
    def __init__(self):
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        return iter([[0]])


def test_the_samplers_pass_begins_where_it_is_asked_for():
    own = DrawsAtOnce()
    iter(NotedSampler(own))
    assert own.begun == 1


@pytest.mark.parametrize(("draw", "drew"), [(random.random, True), (lambda: torch.rand(1), True), (lambda: 1, False)])
def test_numbers_that_are_drawn_for_a_batch_are_noted(draw, drew):
    def collate(samples):
        draw()
        return samples

    checked = CheckedCollate(collate, None)
    checked.begin(0)
    assert checked([1]) == Flagged([1], drew)
    torch.rand(1)  # between two batches: for the next one
    assert checked([2]).drew


def test_the_scripts_own_beginning_of_a_worker_is_no_draw():
    seen = []
    checked = CheckedCollate(list, lambda number: seen.append((number, random.random())))
    checked.begin(3)
    assert seen[0][0] == 3
    assert not checked([1]).drew


class Rows:
    def __init__(self):
        self.count, self.file = 0, None

    def __getitem__(self, index):
        return self.count, self.file


def flagged(act, kind=CheckedCollate, **named):
    """Return what is flagged of two batches as in a worker."""
    rows = Rows()
    worker._worker_info = worker.WorkerInfo(id=0, num_workers=1, seed=1, dataset=rows)
    try:
        checked = kind(lambda samples: act(rows, samples), None, **named)
        checked.begin(0)
        return [(made.against, [name for name, _ in made.files]) for made in (checked([1]), checked([2]))]
    finally:
        worker._worker_info = None


def flagged_strictly(act):
    """Do so in a copy of the process: an ear for files stays as long as its process does."""
    answer = ask_a_copy(lambda: flagged(act, StrictCollate, sets_up=False))
    assert answer.failed == ""
    return answer.value


class Deaf:
    written = ""

    def taken(self):
        return {}


def counts(rows, samples):
    rows.count += 1


def opens(rows, samples):
    rows.file = rows.file or [1]


def test_a_data_set_that_changes_is_told_and_one_that_opens_something_is_not():
    assert [against for against, _ in flagged(counts)] == ["Rows.count changes while it is read"] * 2
    assert [against for against, _ in flagged(opens)] == ["", ""]


@pytest.mark.parametrize("sets_up", [True, False])
def test_workers_that_stand_in_for_others_may_set_themselves_up_at_the_first_batch_if_at_all(sets_up, monkeypatch):
    monkeypatch.setattr(noted_batches, "OpenedFiles", Deaf)
    found = [against for against, _ in flagged(opens, StrictCollate, sets_up=sets_up)]
    assert (found[0] == "") is sets_up


def test_files_that_are_opened_for_a_batch_are_told(tmp_path):
    (tmp_path / "rows.bin").write_bytes(b"1")

    def reads(rows, samples):
        (tmp_path / "rows.bin").read_bytes()

    assert flagged_strictly(reads) == [("", [str(tmp_path / "rows.bin")])] * 2


def test_files_that_are_written_are_told(tmp_path):
    def writes(rows, samples):
        with contextlib.suppress(OSError):
            (tmp_path / "log").write_text("row")

    (against, _), _ = flagged_strictly(writes)
    assert against == f"writes to {tmp_path / 'log'} while it is read"
