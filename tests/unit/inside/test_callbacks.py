"""The callbacks of the frameworks record a training of theirs, where they are installed."""

import importlib.util
import sys
import types

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import flatout
from flatout.errors import UsageError

DATA = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))


def fit(callback, begin, end):
    """What a framework's loop does with a callback."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    getattr(callback, begin)(None, None)
    for x, y in DataLoader(DATA, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    getattr(callback, end)(None, None)
    getattr(callback, end)(None, None)


@pytest.mark.parametrize(
    ("package", "base", "make", "begin", "end"),
    [
        ("lightning.pytorch", "Callback", "lightning_callback", "on_train_start", "on_train_end"),
        ("transformers", "TrainerCallback", "trainer_callback", "on_train_begin", "on_train_end"),
    ],
)
def test_a_callback_records_from_the_start_of_the_training_to_its_end(
    package, base, make, begin, end, tmp_path, monkeypatch
):
    parent = package.partition(".")[0]
    stand_in = types.ModuleType(package)
    setattr(stand_in, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent, types.ModuleType(parent)))
    monkeypatch.setitem(sys.modules, package, stand_in)
    callback = getattr(flatout, make)(tmp_path)
    assert isinstance(callback, getattr(stand_in, base))
    fit(callback, begin, end)
    assert len(callback.recording.run.steps) == 8
    assert "Each step takes" in callback.recording.report()


def test_a_training_that_was_interrupted_does_not_stand_in_the_way_of_the_next(tmp_path, monkeypatch):
    stand_in = types.ModuleType("transformers")
    stand_in.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    interrupted, following = (flatout.trainer_callback(tmp_path) for _ in range(2))
    interrupted.on_train_begin()
    fit(following, "on_train_begin", "on_train_end")
    assert len(following.recording.run.steps) == 8


@pytest.mark.parametrize(
    ("make", "packages"),
    [("lightning_callback", ("lightning", "pytorch_lightning")), ("trainer_callback", ("transformers",))],
)
def test_without_the_framework_it_says_so(make, packages, tmp_path):
    if any(importlib.util.find_spec(package) for package in packages):
        pytest.skip("the framework is installed here")
    with pytest.raises(UsageError, match="is not installed here"):
        getattr(flatout, make)(tmp_path)
