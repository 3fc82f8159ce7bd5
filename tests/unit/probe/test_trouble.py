"""A probe that fails is taken away, what was measured is kept, and the training goes on."""

import json

import torch

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
        recorder.part.step = lambda step: 1 / 0 if recorder.tracker.num_steps > 5 else None
        assert train(20) == plain
        assert torch.autograd.backward is backward
    finally:
        recorder.detach()
    records = [json.loads(line) for line in recorder.part.path.read_text().splitlines()]
    notes = next(record["values"] for record in records if record["kind"] == "notes")
    assert "ZeroDivisionError" in notes[0]
    assert records[-1]["value"]["reason"] == "probe failed"
