"""What a script saves, as it is when it is saved."""

import threading

import pytest
import torch

from flatout.probe.core.seams import Seams
from flatout.probe.verify.saved_states import SavedStates


@pytest.fixture
def states():
    found, seams = [], Seams()
    SavedStates(threading.get_ident(), found.append, lambda act: act()).install(seams)
    yield found
    seams.undo()


def test_a_state_is_known_by_its_tensors_and_numbers_at_the_time(states, tmp_path):
    model = torch.nn.Linear(3, 2)
    torch.save(model.state_dict(), tmp_path / "first.pt")
    torch.save(obj={"model": model.state_dict(), "epoch": 1}, f=tmp_path / "second.pt")
    torch.save(model.state_dict(), tmp_path / "again.pt")
    with torch.no_grad():
        model.bias += 1
    torch.save(model.state_dict(), tmp_path / "moved.pt")
    assert states[0] == states[2]
    assert len(set(states)) == 3
    assert torch.load(tmp_path / "moved.pt")["bias"].equal(model.bias)


def test_a_state_is_told_by_its_parts(states, tmp_path):
    model = torch.nn.Linear(3, 2)
    for clock in (1.5, 2.5):
        torch.save({"model": model.state_dict(), "at": clock, "w": model.weight, "b": model.bias}, tmp_path / "a.pt")
    one, other = (state.split() for state in states)
    assert [mine == yours for mine, yours in zip(one, other, strict=True)] == [True, True, False]
    torch.save({f"{number}": number for number in range(1000)}, tmp_path / "many.pt")
    assert len(states[2].split()) < 40


def test_a_module_that_is_saved_whole_is_told_by_its_weights(states, tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    )
    model.again = model[0]
    for change in (
        lambda: None,
        lambda: model[0][0][0].weight.data.add_(1),
        lambda: model[0][0][1].running_var.zero_(),
    ):
        change()
        torch.save({"model": model}, tmp_path / "whole.pt")
    torch.save({"model": model}, tmp_path / "again.pt")
    assert len(set(states)) == 3
    assert states[2] == states[3]


def test_what_other_threads_save_is_not_noted(states, tmp_path):
    thread = threading.Thread(target=torch.save, args=(torch.ones(2), tmp_path / "other.pt"))
    thread.start()
    thread.join()
    assert (tmp_path / "other.pt").exists()
    assert states == []
