"""A block of a program, recorded in place: its steps, its report, and nothing left behind."""

import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import flatout
from flatout.cli.main import run as run_command
from flatout.errors import NothingMeasured
from flatout.schema.codec import RUN_FILE, read_run

DATA = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))


def train(epochs=2, stop_after=None):
    """Train a small model and return its weights as they come out."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done = 0
    for _ in range(epochs):
        for x, y in DataLoader(DATA, batch_size=8, shuffle=True):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == stop_after:
                raise ZeroDivisionError("enough")
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def patched():
    """What a recorder wraps, as it is now."""
    return (torch.autograd.backward, torch.optim.Optimizer.zero_grad, torch.save, sys.excepthook)


def test_every_step_of_the_block_is_recorded_and_the_results_stay(tmp_path):
    before, plain = patched(), train()
    with flatout.recording(tmp_path) as run:
        weights = train()
    assert torch.equal(weights, plain)
    assert len(run.run.steps) == 16
    assert {step.epoch for step in run.run.steps} == {0, 1}
    assert patched() == before


def test_its_report_is_the_one_of_the_command_line(tmp_path):
    with flatout.recording(tmp_path) as run:
        train(epochs=4)
    said = run.report(width=70)
    assert "Each step takes" in said
    assert max(map(len, said.splitlines())) <= max(70, len(f"Recording: {run.folder}"))
    assert read_run(run.folder) == run.run


def test_blocks_follow_each_other_each_with_its_own_steps(tmp_path):
    found = []
    for epochs in (1, 3):
        with flatout.recording(tmp_path) as run:
            train(epochs)
        found.append(len(run.run.steps))
    assert found == [8, 24]


def test_a_block_inside_another_records_nothing_of_its_own(tmp_path):
    with flatout.recording(tmp_path) as outer, flatout.recording(tmp_path) as inner:
        train(1)
    assert len(outer.run.steps) == 8
    assert "observed already" in inner.report()
    with pytest.raises(NothingMeasured, match="No training step was recorded"):
        assert inner.run


def test_an_error_goes_through_and_what_was_measured_is_kept(tmp_path):
    before = patched()
    with pytest.raises(ZeroDivisionError), flatout.recording(tmp_path) as run:
        train(stop_after=5)
    assert len(run.run.steps) in (4, 5)
    assert run.run.end.error == "ZeroDivisionError: enough"
    assert patched() == before


def test_a_block_without_a_step_stops_nobody(tmp_path):
    with flatout.recording(tmp_path) as run:
        sum(range(10))
    assert "no training step was recorded" in run.report()
    with pytest.raises(NothingMeasured, match="the step of an optimizer"):
        assert run.run
    assert "nothing recorded" in repr(run)


def test_a_report_that_cannot_be_made_costs_no_training(tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.inside.recording.conclude", lambda *_: 1 / 0)
    with flatout.recording(tmp_path) as run:
        weights = train(1)
    assert weights.isfinite().all()
    assert "could not be read: ZeroDivisionError" in run.report()


def test_nothing_of_the_training_is_held_afterwards(tmp_path):
    with flatout.recording(tmp_path):
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(lambda x: x * 2, backend="eager")
        for x, y in DataLoader(DATA, batch_size=8):
            torch.nn.functional.mse_loss(model(compiled(x)), y).backward()
            optimizer.step()
    held = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer, x, y
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_program_that_was_killed_leaves_a_recording_that_can_be_shown(tmp_path, capsys):
    with flatout.recording(tmp_path) as run:
        train(2)
    (run.folder / RUN_FILE).unlink()
    assert run_command(["report", str(tmp_path)]) == 0
    assert "Each step takes" in capsys.readouterr().out


def test_by_default_it_lies_below_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with flatout.recording() as run:
        train(1)
    assert run.folder.parent == Path(tmp_path, ".flatout", "recording")
    assert "8 steps" in repr(run)
