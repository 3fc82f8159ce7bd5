"""What each DataLoader worker writes of itself: its fetches, its lines, its threads."""

import json
import os

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.probe.core.seams import Seams
from flatout.probe.loader import workers
from flatout.probe.loader.workers import watch_workers


class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((4,), float(index))


@pytest.fixture
def seams(tmp_path):
    made = Seams()
    watch_workers(made, tmp_path)
    yield made
    made.undo()


def test_every_worker_writes_a_file_of_its_own_and_batches_are_the_same(seams, tmp_path):
    loop = torch.utils.data._utils.worker._worker_loop
    batches = list(DataLoader(Rows(), batch_size=3, num_workers=2))
    assert torch.equal(torch.cat(batches), torch.stack([Rows()[index] for index in range(12)]))
    bodies = [json.loads(path.read_text()) for path in tmp_path.glob("deep-worker-*.json")]
    assert sorted(body["worker"]["worker_id"] for body in bodies) == [0, 1]
    for body in bodies:
        assert body["worker"]["pid"] != os.getpid()
        assert body["worker"]["fetches"] == 2
        assert 0 < body["worker"]["busy_s"] <= body["worker"]["alive_s"]
        (stats,) = body["fetching"].values()
        assert stats["fetches"] == 2
        assert {span["lane"] for span in body["spans"]} <= {f"worker {body['worker']['worker_id']}"}
    assert not list(tmp_path.glob("*.partial"))
    seams.undo()
    assert torch.utils.data._utils.worker._worker_loop is not loop


def test_a_worker_that_cannot_be_watched_works_all_the_same(seams, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no watch")

    monkeypatch.setattr(workers, "_WorkerWatch", fail)
    assert len(list(DataLoader(Rows(), batch_size=3, num_workers=1))) == 4
    assert not list(tmp_path.iterdir())


def test_threads_of_the_watch_itself_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: ["1", "2", "3"])
    assert workers._os_threads(own=2) == 1

    def fail(_):
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", fail)
    assert workers._os_threads(own=2) == 1
