"""What nobody thought of is found by asking again: late, and never without a word."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import flatout
from flatout.errors import ChangedTooLate
from flatout.pipeline.inspect import repeated_proof
from flatout.watch import state_watch


class Scaled(Dataset):
    """Numbers times a factor."""

    def __init__(self):
        self.factor = 2.0

    def __len__(self):
        return 40

    def __getitem__(self, index):
        sum(range(2000))
        return torch.tensor([self.factor * index + 1])


@pytest.fixture
def blind(monkeypatch):
    """No change is seen, and a proof is due all the time."""
    monkeypatch.setattr(state_watch.StateWatch, "look", lambda self: "")
    monkeypatch.setattr(state_watch.StateWatch, "look_deep", lambda self: "")
    monkeypatch.setattr(repeated_proof, "_SELDOM", 1e6)


@pytest.mark.slow
def test_a_change_that_nothing_saw_stops_the_training(blind):
    data = Scaled()
    loader = flatout.compile_loader(DataLoader(data, batch_size=8))
    for _ in range(3):
        list(loader)
    data.factor = 3.0
    with pytest.raises(ChangedTooLate, match=r"changed while up to \d\d batches"):
        list(loader)


@pytest.mark.slow
def test_or_is_told_where_that_is_asked_for(blind):
    data = Scaled()
    loader = flatout.compile_loader(DataLoader(data, batch_size=8), on_change="warn")
    for _ in range(3):
        list(loader)
    data.factor = 3.0
    with pytest.warns(RuntimeWarning, match="changed while up to"):
        list(loader)
    assert torch.equal(torch.cat(list(loader)), torch.cat(list(DataLoader(data, batch_size=8))))


@pytest.mark.slow
def test_a_data_set_that_cannot_be_asked_again_is_served_all_the_same(blind, monkeypatch):
    loader = flatout.compile_loader(DataLoader(Scaled(), batch_size=8))
    wanted = [torch.cat(list(loader)) for _ in range(3)][-1]
    answer = flatout.watch.forked_copy.Answer(failed="no")
    monkeypatch.setattr("flatout.pipeline.serve.kept_rows.ask_a_copy", lambda asked: answer)
    assert torch.equal(torch.cat(list(loader)), wanted)
    assert "40 samples kept" in loader.explain()


GLOBAL = 2.0


class OfAGlobal(Scaled):
    def __getitem__(self, index):
        return torch.tensor([GLOBAL * index])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.full
def test_workers_that_begin_with_globals_of_their_own_are_left_alone(method, monkeypatch):
    monkeypatch.setitem(globals(), "GLOBAL", 5.0)
    loaders = [DataLoader(OfAGlobal(), batch_size=8, num_workers=1, multiprocessing_context=method) for _ in range(2)]
    compiled = flatout.compile_loader(loaders[1])
    assert f"its workers start as new processes ({method})" in flatout.explain(compiled)
    for _ in range(2):
        assert torch.equal(torch.cat(list(compiled)), torch.cat(list(loaders[0])))
