"""kept-reads in a training that makes its batches by hand: the same losses, read from memory."""

import sys
import types

import numpy as np
import pytest
import torch
from tests.unit.fixes.training import same_bits, under

from flatout.fixes.kept_reads import FIX, choices
from flatout.kept import known_files
from flatout.rules.core.example import example, line
from flatout.schema.phase import Phase


def train(epochs=4):
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)
    optimizer, losses = torch.optim.SGD([weight], lr=0.1), []
    for epoch in range(epochs):
        for number in torch.randperm(6).tolist():
            rows = np.load(f"{number}.npy")
            rows += epoch
            loss = (torch.from_numpy(rows).float() @ weight).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, weight.detach()


@pytest.mark.slow
def test_a_training_is_the_same_to_the_last_bit(workdir, monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    for number in range(6):
        np.save(f"{number}.npy", np.random.default_rng(number).standard_normal((4, 3)))
    plain, load = train(), np.load
    with under("kept-reads") as process:
        assert np.load is not load
        ours = train()
        assert process.site.hits["read before"] >= 8
        assert not process.site.failure
    assert np.load is load
    assert same_bits(ours, plain)


def recorded(tmp_path, text):
    (tmp_path / "train.py").write_text(f"{text}\n")
    return example(step_ms=10, input=5, lines=[line(1.0, (str(tmp_path / "train.py"), 1, "f"), phase=Phase.INPUT)]).run


def test_it_is_offered_where_lines_that_read_files_cost_time(tmp_path):
    assert choices(recorded(tmp_path, "x = np.load(paths[i])")) == ({},)
    assert "reading arrays" in FIX.unfit(recorded(tmp_path, "x = model(x)"))


def test_a_function_of_the_scripts_own_is_called_each_time(workdir, monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    np.save("a.npy", np.ones(2))
    own, calls, load = types.ModuleType("soundfile"), [], np.load
    own.read = lambda path: calls.append(path) or np.random.rand()
    monkeypatch.setitem(sys.modules, "soundfile", own)
    monkeypatch.setattr(np, "loadtxt", lambda path: calls.append(path) or load(path))
    with under("kept-reads") as process:
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        for _ in range(3):
            own.read("a.npy"), np.loadtxt("a.npy"), np.load("a.npy")
        assert len(calls) == 6
        assert process.site.hits["read before"] >= 1
        assert "is not the function of its library" in process.site.stood_back
