"""The live view in the training's process: what it writes is what happens, and nothing of it reaches the training."""

import atexit
import json
import shutil
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.probe.system.live_status import LiveProbes
from flatout.schema.live import LIVE_FILES, RankNow
from flatout.schema.order import Order
from flatout.schema.plain import from_plain


@pytest.fixture
def probes(tmp_path):
    """The probes of an order in an empty folder, attached for the length of a test."""
    made = LiveProbes(Order(mode="run", folder=str(tmp_path), script="train.py", live=True))
    made.attach()
    yield made
    made.finish()
    made.detach()
    atexit.unregister(made.finish)


def train(epochs=1, batches=20, each_step=lambda: None, **loader):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(batches * 3, 4)), batch_size=3, **loader)
    for _ in range(epochs):
        for (x,) in data:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            each_step()
    return model.weight.detach().clone()


def written(folder):
    (path,) = folder.glob(LIVE_FILES)
    return from_plain(RankNow, json.loads(path.read_text()))


def test_what_is_written_is_what_happened(probes, tmp_path):
    train(epochs=2, each_step=lambda: time.sleep(0.002))
    probes.finish()
    found = written(tmp_path)
    assert (found.steps, found.epoch, found.batches, found.epoch_batches) == (40, 2, 20, 20)
    assert found.samples_per_step == 3
    assert found.step_ms > 2
    assert max(found.phases_ms, key=found.phases_ms.get) == "host"
    assert sum(found.phases_ms.values()) == pytest.approx(found.step_ms)
    assert (found.ready, found.most_ready, found.note) == (None, 0, "")
    assert [path.name for path in tmp_path.iterdir()] == [f"live-0-{found.pid}.json"]


def test_it_is_written_while_the_training_runs(probes, tmp_path):
    begin = time.monotonic()
    while not list(tmp_path.glob(LIVE_FILES)) and time.monotonic() - begin < 20:
        train()
    assert written(tmp_path).steps > 0


def test_a_process_that_trains_nothing_writes_nothing_and_starts_no_thread(probes, tmp_path):
    for _ in DataLoader(TensorDataset(torch.randn(12, 4))):
        pass
    probes.finish()
    assert probes._thread is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_batches_that_workers_have_ready_are_counted(probes):
    seen = []

    def look():
        if len(seen) == 3:
            time.sleep(0.5)  # meanwhile the workers fill their queue
        seen.append(probes.now().ready)

    train(each_step=look, num_workers=2, prefetch_factor=2)
    assert max(ready for ready in seen if ready is not None) == 4
    assert probes.now().most_ready in (0, 4)


def test_a_training_without_a_loader_has_no_epochs(probes):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    probes.event_log.replay()
    found = probes.now()
    assert found.steps > 20
    assert (found.epoch, found.batches, found.epoch_batches) == (0, 0, 0)


def test_results_are_the_same_with_it(tmp_path, probes):
    watched = train(epochs=2)
    probes.detach()
    assert torch.equal(watched, train(epochs=2))


def test_a_file_that_cannot_be_written_is_no_trouble_of_the_training(probes, tmp_path):
    train(batches=2)
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError):
        probes.write()
    train()
    probes.finish()
    tmp_path.mkdir()


def test_a_probe_that_fails_is_removed_with_all_others_and_said(probes, tmp_path):
    def broken(step):
        raise ValueError("no\nway")

    before = torch.autograd.backward
    train(batches=3)
    probes.event_log.replay()
    probes.event_log.tracker.on_step = broken
    train(batches=30)
    probes.event_log.replay(whole=True)
    assert torch.autograd.backward is not before
    probes.finish()
    assert "ValueError" in written(tmp_path).note


def test_when_taken_away_everything_is_what_it_was(tmp_path):
    before = (torch.autograd.backward, DataLoader.__iter__, torch.save, torch.optim.Optimizer.zero_grad)
    made = LiveProbes(Order(mode="run", folder=str(tmp_path), script="train.py", live=True))
    made.attach()
    made.detach()
    atexit.unregister(made.finish)
    assert before == (torch.autograd.backward, DataLoader.__iter__, torch.save, torch.optim.Optimizer.zero_grad)
