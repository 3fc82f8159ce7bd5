"""Every change of what samples are made from is seen at the next look, and what they are not made from is not."""

import argparse
import array
import collections
import contextvars
import ctypes
import functools
import os
import random
import types
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from flatout.watch import state_watch
from flatout.watch.state_watch import StateWatch

FACTOR = 3


class Settings:
    def __init__(self):
        self.scale, self.table, self.step = 1.0, {"k": [1, 2]}, 0


class Slotted:
    __slots__ = ("items", "number")

    def __init__(self):
        self.number, self.items = 0, [1]


def closed_over():
    held = 1

    def scaled(x):
        return x * held * FACTOR

    def tell(value):
        nonlocal held
        held = value

    return scaled, tell


class Many(Dataset):
    level = 1

    def __init__(self):
        self.x, self.y, self.z = torch.randn(1000, 64), list(range(1000)), np.arange(1000)
        self.settings, self.slotted, self.unread = Settings(), Slotted(), 0
        self.rows = [{"id": number, "label": number % 10} for number in range(3000)]
        self.scaled, self.tell = closed_over()
        self.recent, self.codes = collections.deque(range(300)), array.array("i", range(500))
        self.counts, self.ordered = collections.Counter(a=1), collections.OrderedDict(a=1, b=2)
        self.names, self.objects = {"one", "two"}, [Settings() for _ in range(500)]
        self.tensors, self.bytes = [torch.ones(3) + number for number in range(100)], bytearray(b"abc")
        self.part, self.weak = functools.partial(self.scaled, 2), weakref.ref(self.settings)
        self.cells, self.number = np.array([[1], [2]], dtype=object), ctypes.c_int(3)
        self.view, self.space = self.z[100:200], argparse.Namespace(gamma=1.0, step=0)
        self.proxy = types.MappingProxyType(self.settings.table)

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        used = (
            self.y,
            self.z,
            self.rows,
            self.slotted.number,
            self.slotted.items,
            self.recent,
            self.codes,
            self.counts,
        )
        used += (self.ordered, self.names, self.objects, self.tensors, self.part, self.weak, self.bytes, self.cells)
        used += (self.number, self.view, self.space.gamma, self.proxy, self.settings.table, os.environ.get("FLATOUT_X"))
        return self.scaled(self.x[index]) * self.settings.scale * self.level, used


CHANGES = {
    "an attribute of an attribute": lambda d: setattr(d.settings, "scale", 0.5),
    "an attribute that hides one of the class": lambda d: setattr(d, "level", 5),
    "an attribute of the class": lambda d: setattr(Many, "level", 5),
    "a global": lambda d: globals().update(FACTOR=7),
    "a tensor by .data": lambda d: d.x.data[5].fill_(1),
    "a tensor by .numpy()": lambda d: d.x.numpy().__setitem__(500, 1),
    "another tensor": lambda d: setattr(d, "x", d.x * 2),
    "other numbers of a tensor": lambda d: setattr(d.x, "data", torch.ones(1000, 64)),
    "the shape of a tensor": lambda d: d.x.t_(),
    "an item of a list": lambda d: d.y.__setitem__(5, 9999),
    "one more item": lambda d: d.y.append(9),
    "the order of a list": lambda d: d.y.reverse(),
    "a number of an array": lambda d: d.z.__setitem__(5, 9999),
    "a number by a view": lambda d: d.view.__setitem__(5, 9999),
    "an array by copyto": lambda d: np.copyto(d.z, d.z + 1),
    "an array by its address": lambda d: ctypes.memset(d.z.ctypes.data + 800, 1, 8),
    "a list in a dictionary": lambda d: d.settings.table["k"].__setitem__(0, 9999),
    "a slot": lambda d: setattr(d.slotted, "number", 9999),
    "a list in a slot": lambda d: d.slotted.items.append(9999),
    "one of many dictionaries": lambda d: d.rows[2999].__setitem__("label", 99),
    "a name of a closure": lambda d: d.tell(44),
    "an item of a deque": lambda d: d.recent.__setitem__(100, 9999),
    "the turn of a deque": lambda d: d.recent.rotate(1),
    "an item of an array.array": lambda d: d.codes.__setitem__(100, 9999),
    "a counter": lambda d: d.counts.update("a"),
    "the order of an OrderedDict": lambda d: d.ordered.move_to_end("a"),
    "a set": lambda d: d.names.add("three"),
    "an attribute of one of many objects": lambda d: setattr(d.objects[400], "scale", 9.5),
    "a new attribute of one of many objects": lambda d: setattr(d.objects[400], "table", {}),
    "a list deep in one of many objects": lambda d: d.objects[400].table["k"].append(4),
    "one of many tensors": lambda d: d.tensors[50].add_(1),
    "other numbers of one of many tensors": lambda d: setattr(d.tensors[50], "data", torch.zeros(3)),
    "a bytearray": lambda d: d.bytes.__setitem__(0, 5),
    "an item of an array of objects": lambda d: d.cells.__setitem__((0, 0), 5),
    "a ctypes number": lambda d: setattr(d.number, "value", 5),
    "an attribute of a namespace": lambda d: setattr(d.space, "gamma", 0.5),
    "the environment": lambda d: os.environ.__setitem__("FLATOUT_X", str(id(d))),
    "a method of the class": lambda d: setattr(Many, "__getitem__", lambda self, index: 0),
    "the class of the data set": lambda d: setattr(d, "__class__", Other),
    "the class of one of many objects": lambda d: setattr(d.objects[400], "__class__", OtherSettings),
}


class Other(Many):
    pass


class OtherSettings(Settings):
    pass


@pytest.fixture
def left_as_it_was():
    level, own, factor = Many.level, Many.__getitem__, FACTOR
    yield
    Many.level, Many.__getitem__ = level, own
    globals().update(FACTOR=factor)
    os.environ.pop("FLATOUT_X", None)


@pytest.mark.parametrize("pages", [True, False])
@pytest.mark.parametrize("change", CHANGES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.slow
def test_a_change_is_seen_at_the_next_look(change, pages, left_as_it_was, monkeypatch):
    if not pages:  # an older kernel
        monkeypatch.setattr(state_watch, "written_pages", lambda: None)
    data = Many()
    watch = StateWatch([("Many", data)])
    assert watch.look_deep() == ""
    CHANGES[change](data)
    assert watch.look_deep() != ""


@pytest.mark.parametrize(
    "change",
    [
        lambda d: setattr(d, "unread", 7777),
        lambda d: setattr(d, "never_named", []),
        lambda d: setattr(d.settings, "step", 5),
        lambda d: setattr(d.space, "step", 5),
        lambda d: setattr(d.settings, "scale", float("1.0")),  # another object, the same number
        lambda d: [d.rows[place]["label"] for place in range(3000)],
        lambda d: (d.x.sum(), d.x[5:10], d.z[3], d.y.index(5), len(d.recent)),
        lambda d: [torch.zeros(100_000) for _ in range(50)],
        lambda d: globals().update(unrelated=1),
    ],
)
def test_what_is_no_change_is_none(change):
    data = Many()
    watch = StateWatch([("Many", data)])
    change(data)
    assert watch.look_deep() == ""
    data.y[0] = 99
    assert watch.look_deep() == "Many.y"


def test_a_change_is_named_in_the_words_of_the_script():
    data = Many()
    watch = StateWatch([("Many", data)])
    data.rows[17]["label"] = 5
    assert watch.look() == "Many.rows[17]"


def test_a_change_beside_one_that_is_none_is_seen():
    data = Many()
    watch = StateWatch([("Many", data)])
    data.never_named = 1
    data.settings.scale = 2.0
    data.x[5] = 1
    assert watch.look() != ""
    watch = StateWatch([("Many", data)])
    data.never_named_either = 1
    data.settings.table["k"].append(1)
    assert watch.look() != ""


def test_two_watches_of_the_same_memory_both_see_a_change():
    data = Many()
    one, other = StateWatch([("Many", data)]), StateWatch([("Many", data)])
    data.x[7] = 1
    assert one.look() == "Many.x"
    assert other.look() == "Many.x"


def test_a_watch_made_after_a_change_leaves_it_to_the_earlier_one():
    data = Many()
    one = StateWatch([("Many", data)])
    data.x[7] = 1
    other = StateWatch([("Many", data)])
    assert one.look() == "Many.x"
    assert other.look() == ""


def test_a_data_set_is_not_kept_alive():
    data = Many()
    alive = weakref.ref(data)
    watch = StateWatch([("Many", data)])
    del data
    assert alive() is None
    del watch


def test_what_is_referred_to_weakly_goes_and_that_is_seen():
    data, key = Many(), Settings()
    data.part = weakref.WeakKeyDictionary({key: 1})
    watch = StateWatch([("Many", data)])
    assert watch.look() == ""
    del key
    assert len(data.part) == 0
    assert watch.look() != ""


@pytest.mark.parametrize("code", ["eval('FACTOR')", "globals()['FAC' + 'TOR']", "sys.modules['m' + 'y'].x"])
def test_code_that_reads_what_is_not_written_down_cannot_be_watched(code):
    held = {}
    exec(f"def reads(index):\n    return {code}", {"__name__": __name__, "sys": None}, held)
    data = Many()
    data.scaled = held["reads"]
    assert StateWatch([("Many", data)]).graph.unwatched


@pytest.mark.parametrize("name", ["sin", "Tensor.clamp"])
def test_a_function_of_torch_under_another_is_seen(name, monkeypatch):
    class Library(Dataset):
        def __getitem__(self, index):
            return torch.sin(torch.ones(2)).clamp(0, 1)

    data = Library()
    watch = StateWatch([("Library", data)])
    owner = torch.Tensor if "." in name else torch
    monkeypatch.setattr(owner, name.rpartition(".")[2], lambda *args: torch.zeros(2))
    assert watch.look() != ""


def test_numbers_that_are_read_anew_may_change():
    data = Many()
    watch = StateWatch([("Many", data)], live=frozenset([data.x.data_ptr()]))
    data.x[7] = 1
    assert watch.look() == ""
    data.z[7] = 1
    assert watch.look() == "Many.z"


def test_what_is_left_out_may_change():
    data = Many()
    data.transform = Settings()
    watch = StateWatch([("Many", data)], lambda: [data.settings])
    data.settings.scale = 7.0
    assert watch.look() == ""


def test_an_iterator_cannot_be_watched():
    data = Many()
    data.part = iter([1, 2, 3])
    assert any("iterator" in each for each in StateWatch([("Many", data)]).graph.unwatched)


def test_a_hostile_getattr_does_not_run():
    class Raises:
        def __init__(self):
            self.held = [1]

        def __getattr__(self, name):
            raise KeyError(name)

        def __eq__(self, other):
            raise ZeroDivisionError

        __hash__ = None

    data = Many()
    data.settings = Raises()
    watch = StateWatch([("Many", data)])
    assert watch.look() == ""
    data.settings = Raises()
    assert watch.look() != ""


def test_a_context_variable_is_looked_at_by_identity():
    variable = contextvars.ContextVar("strength", default=1)
    data = Many()
    data.part = variable
    assert StateWatch([("Many", data)]).look() == ""


SCALE = 2.0


class Scaled(Dataset):
    def __getitem__(self, index):
        return index * SCALE


def test_names_that_code_reads_are_watched_on_as_their_module_grows(monkeypatch):
    """Its dictionary moves in memory; nothing else is followed anew."""
    data = Scaled()
    watch = StateWatch([("Scaled", data)])
    followed = watch.graph
    for number in range(500):
        monkeypatch.setitem(globals(), f"nobody_reads_{number}", number)
        assert watch.look() == ""
    assert watch.graph is followed
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert "SCALE" in watch.look()


class Annotated(Dataset):
    def __init__(self, number):
        self.items = [{"label": index % 10, "box": [index, 1.5], "name": f"image {index}"} for index in range(number)]

    def __getitem__(self, index):
        return self.items[index]["label"]


@pytest.mark.parametrize("place", [0, 33_333, 99_999])
@pytest.mark.few(1)
@pytest.mark.slow
def test_of_a_hundred_thousand_dictionaries_one_that_changes_is_seen(place):
    data = Annotated(100_000)
    watch = StateWatch([("Annotated", data)])
    assert not watch.graph.unwatched and watch.look() == ""
    data.items[place]["label"] = 11
    assert "items" in watch.look()
    watch = StateWatch([("Annotated", data)])
    assert watch.look() == ""
    data.items[place]["box"][1] = 2.5
    assert "items" in watch.look()


class _Columns(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return {name: getattr(self, name)[index] for name in vars(self)}


def test_attributes_count_that_code_reads_under_computed_names_alone():
    dataset = _Columns([[1.0], [2.0]])
    watch = StateWatch([("dataset", dataset)])
    assert watch.look() == ""
    dataset.rows[1][0] = 3.0
    assert watch.look() == "dataset.rows[1]"


def test_the_random_streams_of_the_process_may_go_on():
    class Draws(Dataset):
        draw = random.random

    dataset = Draws()
    watch = StateWatch([("dataset", dataset)])
    random.random()
    assert watch.look() == ""


def test_a_file_that_changes_beside_a_name_that_nobody_reads_is_seen_at_once(tmp_path, monkeypatch):
    file = tmp_path / "labels.csv"
    file.write_text("1")
    data = Scaled()
    watch = StateWatch([("Scaled", data)], asked=frozenset({str(file)}))
    assert watch.look() == ""
    monkeypatch.setitem(globals(), "nobody_reads_it", 1)
    file.write_text("2")
    assert watch.look() == f"the file {file}"


def test_an_array_that_is_copied_makes_no_other_attribute_count():
    class Copies(Dataset):
        def __init__(self):
            self.rows = np.arange(4)

        def __getitem__(self, index):
            return self.rows.copy()[index]

    dataset = Copies()
    watch = StateWatch([("dataset", dataset)])
    dataset.note = 1
    assert watch.look() == ""


def test_names_of_attributes_are_those_that_the_instructions_load():
    from flatout.watch.components import attributes_in, names_in

    functions = [value for value in vars(torch.Tensor).values() if hasattr(value, "__code__")]
    assert len(functions) > 50
    for function in functions:
        assert attributes_in(function.__code__) == names_in(function.__code__).attributes
