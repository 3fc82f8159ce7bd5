"""A probe that fails is taken away, what was measured is kept, and the training goes on."""

import json

import pytest
import torch
from torch._utils import ExceptionWrapper

from flatout.probe.core.probe_failure import in_one_line
from flatout.probe.recorder import Recorder
from flatout.schema.order import Order


def train(num_steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(num_steps):
        loss = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_failing_probe_is_removed_and_the_training_goes_on(tmp_path):
    (tmp_path / "parts").mkdir()
    plain = train(20)
    backward = torch.autograd.backward
    recorder = Recorder(Order(mode="timed", folder=str(tmp_path), script="x", steps=1000, protect_files=False))
    recorder.attach()
    try:
        recorder.part.step = lambda step: 1 / 0 if recorder.probes.event_log.tracker.num_steps > 5 else None
        assert train(20) == plain
        assert torch.autograd.backward is backward
    finally:
        recorder.detach()
    records = [json.loads(line) for line in recorder.part.path.read_text().splitlines()]
    notes = next(record["values"] for record in records if record["kind"] == "notes")
    assert "ZeroDivisionError" in notes[0]
    assert records[-1]["value"]["reason"] == "probe failed"


def test_an_error_is_told_in_one_line():
    assert in_one_line(ValueError("no such file:\ntrain.csv")) == "ValueError: no such file: train.csv"
    assert in_one_line(KeyError()) == "KeyError:"
    assert len(in_one_line(ValueError("x" * 5000))) == 400


def test_of_an_error_in_a_worker_its_own_last_line_is_told():
    try:
        raise RuntimeError("unable to allocate shared memory")
    except RuntimeError:
        carried = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(RuntimeError, match="Original Traceback") as failure:
        carried.reraise()
    assert in_one_line(failure.value) == "RuntimeError: unable to allocate shared memory"
