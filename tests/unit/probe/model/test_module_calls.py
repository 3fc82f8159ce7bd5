"""Calls that go through a function of ours: those of one module, and of no copy of it, however the copy was made."""

import copy
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

from flatout.probe.model.module_calls import OwnCalls

X = torch.ones(2, 3)


class Net(nn.Module):
    """A model that copies its `__dict__` where asked to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)

    def twin(self):
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._modules = {"linear": copy.deepcopy(self.linear)}
        return other


class WithState(Net):
    """A model whose own state is all of its `__dict__`."""

    def __getstate__(self):
        return dict(self.__dict__)


def parametrized():
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))


def through_file(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": through_file,
    "average": lambda model: torch.optim.swa_utils.AveragedModel(model),
}


@pytest.fixture
def calls():
    calls = OwnCalls()
    yield calls
    calls.undo()


def put(calls, module):
    """Have calls of `module` counted in the list that is returned."""
    seen = []
    beneath, ref = calls.beneath(module), weakref.ref(module)

    def call(*args):
        seen.append(args)
        return (beneath(ref()) or ref()._call_impl)(*args)

    calls.put(module, call)
    return seen


WAYS = [(make, way) for make in (Net, WithState) for way in COPIES]


@pytest.mark.parametrize(("make", "way"), [*WAYS, (parametrized, "deepcopy"), (parametrized, "average")])
def test_a_copy_runs_its_own_weights(calls, make, way):
    model = make()
    seen = put(calls, model)
    other = COPIES[way](model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(7.0)
    assert not torch.equal(other(X), model(X))
    assert len(seen) == 1


def test_a_copy_of_the_dictionary_runs_its_own_weights(calls):
    for model in (Net(), WithState()):
        seen = put(calls, model)
        for other in (model.twin(), copy.copy(model)):
            other._modules = {"linear": nn.Linear(3, 2)}
            assert torch.equal(other(X), other.linear(X))
        assert not seen
        assert "_compiled_call_impl" not in vars(model)


def test_a_replica_runs_itself(calls):
    model = Net()
    seen = put(calls, model)
    model._replicate_for_data_parallel()(X)
    assert not seen


def test_what_is_compiled_in_place_is_called_and_found(calls):
    model = Net()
    model.compile(backend="eager")
    seen = put(calls, model)
    before = vars(model)["_compiled_call_impl"]
    assert calls.beneath(model)(model) is before
    model.compile(backend="eager")
    assert vars(model)["_compiled_call_impl"] is not before
    assert model._compiled_call_impl is not vars(model)["_compiled_call_impl"]
    del model._compiled_call_impl
    with pytest.raises(AttributeError):
        del model._compiled_call_impl
    assert torch.equal(model(X), model.linear(X))
    assert len(seen) == 1


def test_two_who_watch_the_same_module_both_see_its_calls(calls):
    model, other = Net(), OwnCalls()
    first = put(calls, model)
    second = put(other, model)
    again = put(calls, model)  # as after a look for modules
    model(X)
    assert (len(first), len(second), len(again)) == (0, 1, 1)
    calls.take(model)
    model(X)
    assert (len(second), len(again)) == (2, 1)
    other.undo()
    assert torch.equal(model(X), model.linear(X))


def test_a_class_that_changes_is_called_as_it_stands(calls):
    model = nn.Linear(3, 2)
    seen = put(calls, model)
    nn.utils.parametrizations.weight_norm(model)
    model(X)
    assert len(seen) == 1
    nn.utils.parametrize.remove_parametrizations(model, "weight")
    model.__class__ = type("Other", (nn.Linear,), {"forward": lambda self, x: x})
    assert torch.equal(model(X), X)
    assert len(seen) == 2


def test_classes_are_left_as_they_were_and_modules_are_let_go(calls):
    model = Net()
    put(calls, model)
    gone = weakref.ref(model)
    del model
    assert gone() is None
    calls.forget_gone()
    calls.undo()
    assert "_compiled_call_impl" not in vars(Net)
    assert Net._compiled_call_impl is None


def test_a_class_that_is_pickled_by_value_has_nothing_of_it(calls):
    model = Net()
    put(calls, model)
    assert Net._compiled_call_impl is None
    assert pickle.loads(pickle.dumps(vars(Net)["_compiled_call_impl"])) is None


def test_a_module_can_be_scripted_and_traced(calls):
    model = Net().eval()
    put(calls, model)
    with pytest.warns((DeprecationWarning, FutureWarning)):  # the latter from torch 2.14 on
        scripted, traced = torch.jit.script(model), torch.jit.trace(model, X)
    for other in (scripted, traced):
        assert torch.equal(other(X), model(X))
