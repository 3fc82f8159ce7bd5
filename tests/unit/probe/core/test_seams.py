"""Replacing what is not ours, and putting it back."""

import pickle
import sys
import types

import pytest
import torch
from tests.unit.probe.watched import Watch

from flatout.probe.core.seams import Seams

PLACE = "a_module_of_someone_else"


def plain(x, y=2):
    """The sum of two numbers."""
    return x + y


class Owner:
    def method(self):
        return "method"

    @staticmethod
    def static(x):
        return x

    @classmethod
    def made(cls):
        return cls


class Heir(Owner):
    pass


@pytest.fixture
def foreign(monkeypatch):
    module = types.ModuleType(PLACE)
    module.plain, module.Owner, module.Heir = plain, Owner, Heir
    monkeypatch.setitem(sys.modules, PLACE, module)
    monkeypatch.setattr(plain, "__module__", PLACE)
    return module


def counting(original, hits):
    def wrapper(*args, **kwargs):
        hits.count += 1
        return original(*args, **kwargs)

    return wrapper


def test_undo_restores_the_very_object(foreign):
    before = dict(vars(Owner))
    seams = Seams()
    assert seams.wrap(f"{PLACE}:plain", counting)
    assert seams.wrap(f"{PLACE}:Owner.method", counting)
    assert seams.wrap(f"{PLACE}:Owner.static", counting)
    assert foreign.plain(1) == 3
    assert Owner().method() == "method"
    assert Owner().static(4) == Owner.static(4) == 4
    assert seams.hits() == {f"{PLACE}:plain": 1, f"{PLACE}:Owner.method": 1, f"{PLACE}:Owner.static": 2}
    seams.undo()
    assert foreign.plain is plain
    assert dict(vars(Owner)) == before


def test_what_was_inherited_is_inherited_again(foreign):
    seams = Seams()
    seams.wrap(f"{PLACE}:Heir.method", counting)
    seams.wrap(f"{PLACE}:Heir.static", counting)
    assert Heir().method() == "method"
    assert Heir.static(3) == Heir().static(3) == 3
    assert Owner().method() == "method"
    seams.undo()
    assert "method" not in vars(Heir)
    assert "static" not in vars(Heir)


def test_a_class_method_stays_one(foreign):
    seams = Seams()
    seams.wrap(f"{PLACE}:Owner.made", counting)
    assert Owner.made() is Owner
    assert Heir.made() is Heir
    seams.undo()
    assert Heir.made() is Heir


def test_two_wraps_of_one_name_come_off_in_reverse(foreign):
    seams = Seams()
    seams.wrap(f"{PLACE}:plain", counting)
    seams.wrap(f"{PLACE}:plain", counting)
    foreign.plain(1)
    assert seams.hits() == {f"{PLACE}:plain": 2}
    seams.undo()
    assert foreign.plain is plain


def test_undo_leaves_alone_what_the_script_replaced(foreign):
    def own(x):
        return x

    seams = Seams()
    seams.wrap(f"{PLACE}:plain", counting)
    foreign.plain = own
    seams.undo()
    assert foreign.plain is own


def test_undo_of_what_the_script_deleted(foreign):
    seams = Seams()
    seams.wrap(f"{PLACE}:plain", counting)
    del foreign.plain
    seams.undo()
    assert not hasattr(foreign, "plain")


@pytest.mark.parametrize("name", ["no_such_module_anywhere:f", f"{PLACE}:absent", f"{PLACE}:Owner.absent.deeper"])
def test_a_name_that_is_not_there_is_no_error(foreign, name):
    seams = Seams()
    assert not seams.wrap(name, counting)
    assert seams.hits() == {}


def test_a_wrapper_looks_like_what_it_wraps(foreign):
    seams = Seams()
    seams.wrap(f"{PLACE}:plain", counting)
    assert (foreign.plain.__name__, foreign.plain.__doc__) == ("plain", plain.__doc__)
    assert foreign.plain.__wrapped__ is plain
    seams.undo()


def test_a_wrapped_function_is_pickled_by_its_name():
    seams = Seams()
    seams.wrap("torch:save", counting)
    found = pickle.dumps(torch.save)
    assert pickle.loads(found) is torch.save
    assert b"flatout" not in found
    seams.undo()
    assert pickle.loads(found) is torch.save


def test_all_the_probes_leave_torch_as_it_was():
    from torch.optim import optimizer as torch_optimizer

    owners = (
        torch,
        torch.Tensor,
        torch.autograd,
        torch.nn.utils,
        torch.nn.utils.clip_grad,
        torch.serialization,
        torch.optim.Optimizer,
        torch.amp.GradScaler,
        torch.utils.data.DataLoader,
        torch.utils.data.dataloader._BaseDataLoaderIter,
    )
    with Watch() as w:  # what torch imports when it is first used is no change of ours
        w.train_on(model := w.model(), w.sgd(model), torch.ones(2, 2))
    before = [dict(vars(owner)) for owner in owners]
    hooks = dict(torch_optimizer._global_optimizer_pre_hooks), dict(torch_optimizer._global_optimizer_post_hooks)
    with Watch() as w:
        model = w.model()
        attributes = set(vars(model))
        optimizer = w.sgd(model)
        for x in w.loader(4):
            w.train_on(model, optimizer, x)
        assert w.modules.calls.has(model)
        assert set(vars(model)) == attributes  # what watches it is told which module is called, not kept in it
    for owner, names in zip(owners, before, strict=True):
        assert {name for name, value in vars(owner).items() if names.get(name) is not value} <= {"__doc__"}, owner
    assert hooks == (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    assert set(vars(model)) == attributes
