"""What a script writes is a checkpoint where it saves one, and host time where it only writes a log."""

import io
import os
import threading

import pytest
import torch
from tests.unit.probe.watched import LOSS, Watch

SYNC = 4  # milliseconds that flushing a file takes


@pytest.fixture
def w(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(os, "fsync", lambda file: watch.clock.spend(SYNC))
    with watch:
        yield watch


def trained(w, after_step):
    model = w.model()
    optimizer = w.sgd(model)
    for number, x in enumerate(w.loader(6)):
        w.train_on(model, optimizer, x)
        after_step(number, model)
    w.end()
    return w


def test_flushing_a_log_is_host_time(w):
    trained(w, lambda number, model: os.fsync(0))
    assert "checkpoint" not in w.phases(3)
    assert w.phases(3)["host"] == LOSS + SYNC


def test_flushing_what_was_saved_is_part_of_the_checkpoint(w):
    def save(number, model):
        if number == 3:
            torch.save(model.state_dict(), io.BytesIO())
        os.fsync(0)

    trained(w, save)
    assert w.phases(3)["checkpoint"] == SYNC
    assert ("checkpoint" in w.phases(2), "checkpoint" in w.phases(4)) == (False, False)


def test_a_save_in_another_thread_makes_no_log_a_checkpoint(w):
    def save(number, model):
        thread = threading.Thread(target=torch.save, args=(model.state_dict(), io.BytesIO()))
        thread.start()
        thread.join()
        os.fsync(0)

    trained(w, save)
    assert "checkpoint" not in w.phases(3)
