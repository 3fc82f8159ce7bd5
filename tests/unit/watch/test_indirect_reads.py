"""Samples that read something without naming it where it stands: what changes there is in the next batch."""

import enum
import importlib
import operator
import os
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout import compile_loader

LENGTH = 32


class Settings:
    __match_args__ = ("rate",)

    def __init__(self, rate=2):
        self.rate = rate


class Bright:
    def light(self):
        return 5.0


class Dim:
    def light(self):
        return 1.0


class Lamp(Dim):
    pass


class Shelf(type):
    stock = 4.0

    def __getattr__(cls, name):
        if name == "books":
            return Shelf.stock
        raise AttributeError(name)


class Library(metaclass=Shelf):
    pass


class Doubling(torch.nn.Module):
    def forward(self, values):
        return values * 2


class Reads(Dataset):
    """Gives what `read` finds in the settings or elsewhere."""

    def __init__(self, read, held=None):
        self.read, self.settings, self.held = read, Settings(), held

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        sum(range(4000))
        return torch.tensor(float(self.read(self)) + index)


def by_pattern(data):
    match data.settings:
        case Settings(rate):
            return rate
    return -1.0


def imported(_):
    import late_settings

    return late_settings.RATE


def imported_from(_):
    from late_settings import RATE

    return RATE


def imported_package(_):
    from late_package import inner

    return inner.RATE


def closed_over():
    import late_settings

    return lambda _: late_settings.RATE


def set_rate(data):
    data.settings.rate = 7


def set_imported(_):
    sys.modules["late_settings"].RATE = 7.0


def hooked(_):
    HOOKS.append(torch.nn.modules.module.register_module_forward_hook(lambda module, given, made: made + 3))


HOOKS = []
READS = {
    "format": (lambda data: "{.rate}".format(data.settings), set_rate),  # noqa: UP032 - what is tested
    "format of a format": (lambda data: len("{:{.rate}}".format("", data.settings)), set_rate),
    "a pattern made elsewhere": (lambda data: data.held.format(data.settings), set_rate),
    "a class pattern": (by_pattern, set_rate),
    "a pickled object": (
        lambda data: len(pickle.dumps(data.settings)),
        lambda data: setattr(data.settings, "rate", "long"),
    ),
    "an attribute getter": (lambda data: data.held(data.settings), set_rate),
    "an imported module": (imported, set_imported),
    "an imported name": (imported_from, set_imported),
    "a module of a package": (imported_package, lambda _: setattr(sys.modules["late_package.inner"], "RATE", 7.0)),
    "a module in an attribute": (lambda data: data.held.RATE, lambda data: setattr(data.held, "RATE", 7.0)),
    "bases of a class": (lambda _: Lamp().light(), lambda _: setattr(Lamp, "__bases__", (Bright,))),
    "a class of classes": (lambda _: Library.books, lambda _: setattr(Shelf, "stock", 7.0)),
    "a variable in a path": (
        lambda _: len(os.path.expandvars("$LATE_NAME")),
        lambda _: os.environ.update(LATE_NAME="x"),
    ),
    "the home": (lambda _: len(os.path.expanduser("~/x")), lambda _: os.environ.update(HOME="/a/much/longer/home")),
    "a hook of all modules": (lambda data: data.held(torch.ones(1)).item(), hooked),
}
HELD = {
    "a pattern made elsewhere": lambda: "{0.rate}",
    "an attribute getter": lambda: operator.attrgetter("rate"),
    "a module in an attribute": lambda: importlib.import_module("late_settings"),
    "a hook of all modules": Doubling,
}


@pytest.fixture
def late(tmp_path, monkeypatch):
    (tmp_path / "late_settings.py").write_text("RATE = 2.0\n")
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text("")
    (tmp_path / "late_package" / "inner.py").write_text("RATE = 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("late_")]:
        del sys.modules[name]
    Lamp.__bases__, Shelf.stock = (Dim,), 4.0
    while HOOKS:
        HOOKS.pop().remove()


def values(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("name", READS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.slow
def test_what_is_read_without_its_name_is_in_the_next_batch(name, late):
    read, change = READS[name]
    data = Reads(read, HELD.get(name, lambda: None)())
    loader = compile_loader(DataLoader(data, batch_size=8))
    before = [values(loader) for _ in range(4)]
    assert before[0] == before[-1]
    assert "kept" in loader.explain()
    walked = iter(loader)
    next(walked)
    change(data)
    plain = values(DataLoader(data, batch_size=8))
    assert plain != before[0]
    assert values(walked) == plain[1:]
    assert values(loader) == plain


def test_a_module_that_a_closure_holds_and_one_that_makes_its_attributes(late):
    read = closed_over()
    made = types.ModuleType("late_made")
    exec("kept = [2.0]\ndef __getattr__(name):\n    return kept[0]\n", vars(made))
    for reading, change in (
        (read, lambda: set_imported(None)),
        (lambda _: made.anything, lambda: made.kept.append(made.kept.pop() + 1)),
    ):
        data = Reads(reading)
        loader = compile_loader(DataLoader(data, batch_size=8))
        before = [values(loader) for _ in range(3)][-1]
        change()
        assert values(loader) == values(DataLoader(data, batch_size=8)) != before


class Mode(enum.Enum):
    FAST = 1


def test_members_of_an_enumeration_may_change(late):
    Mode.FAST.extra = 2.0
    data = Reads(lambda _: Mode.FAST.value + Mode["FAST"].extra)
    loader = compile_loader(DataLoader(data, batch_size=8))
    before = [values(loader) for _ in range(3)][-1]
    Mode.FAST.extra = 5.0
    assert values(loader) == values(DataLoader(data, batch_size=8)) != before
    Mode.FAST._value_ = 1


def test_the_command_line_and_the_type_of_an_array_count(late, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    rows = np.arange(LENGTH, dtype=np.int32)
    for read, change in (
        (lambda _: len(sys.argv), lambda: sys.argv.append("--fast")),
        (lambda _: float(rows[3]), lambda: setattr(rows, "dtype", np.float32)),
    ):
        data = Reads(read)
        loader = compile_loader(DataLoader(data, batch_size=8))
        before = [values(loader) for _ in range(3)][-1]
        walked = iter(loader)
        next(walked)
        change()
        plain = values(DataLoader(data, batch_size=8))
        assert values(walked) == plain[1:]
        assert values(loader) == plain != before


class Together(Dataset):
    """Samples that are asked for several at once, in `order`."""

    def __init__(self, order):
        self.order = order

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        sum(range(4000))
        return torch.tensor([index * 2.0])

    def __getitems__(self, indices):
        return [self[index] for index in self.order(indices)]


@pytest.mark.parametrize("collate", [None, lambda samples: torch.stack(samples).sum(0)])
def test_samples_that_come_otherwise_together_are_left_alone(collate):
    odd = compile_loader(DataLoader(Together(sorted), batch_size=5, shuffle=True, collate_fn=collate))
    assert "returns different samples when several are requested at once" in odd.explain()
    usual = compile_loader(DataLoader(Together(list), batch_size=5, shuffle=True, collate_fn=collate))
    assert "left as it is" not in usual.explain()
    for compiled, order in ((odd, sorted), (usual, list)):
        plain = DataLoader(Together(order), batch_size=5, shuffle=True, collate_fn=collate)
        for seed in range(3):
            torch.manual_seed(seed)
            found = values(compiled)
            torch.manual_seed(seed)
            assert found == values(plain)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.float8_e4m3fn])
def test_samples_of_types_that_torch_cannot_read_back_are_served(dtype):
    class Odd(Together):
        def __getitem__(self, index):
            sum(range(4000))
            return torch.tensor([float(index)]).to(dtype)

    plain = DataLoader(Odd(list), batch_size=8)
    loader = compile_loader(plain)
    for _ in range(4):
        assert [batch.float().tolist() for batch in loader] == [batch.float().tolist() for batch in plain]
    assert "samples kept" in loader.explain()
