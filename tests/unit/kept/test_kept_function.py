"""Functions that are answered from memory give what they would give, whatever a script does to what they read.

Covers flatout.kept.observed_call, flatout.kept.read_state, flatout.kept.call_key, flatout.kept.held_values,
flatout.kept.shared_defaults
and flatout.watch.no_collection through it.
"""

import abc
import contextlib
import functools
import gc
import inspect
import math
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from tests.unit.fixes.training import same_bits
from tests.unit.kept import tables

from flatout.errors import ChangedTooLate
from flatout.kept import kept_function
from flatout.kept.kept_function import KeptFunction
from flatout.kept.reports import Reports

pytestmark = pytest.mark.slow


class Once:
    """One proof is due, and no more until somebody says so."""

    due = True

    @contextlib.contextmanager
    def proving(self):
        yield
        self.due = False


class Kept:
    """A function that is kept, with what was told of it."""

    def __init__(self, function, on_change="stop"):
        self.left, self.failed, self.acted = [], [], 0
        self.plain = function
        self.call = KeptFunction(
            function, function.__name__, Reports(self.left.append, self.failed.append, on_change, Once()), self._act
        )

    def _act(self):
        self.acted += 1

    def again(self, *args, times=8, **kwargs):
        """Call it several times, each time as it would be plainly; return how many calls were answered from memory."""
        before = self.acted
        for _ in range(times):
            given = self.call(*args, **kwargs)
            wanted = self.plain(*args, **kwargs)
            assert alike(given, wanted), (given, wanted)
        return self.acted - before


def alike(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    return type(one) is type(other) and same_bits(one, other)


@pytest.fixture(autouse=True)
def as_they_were(monkeypatch):
    monkeypatch.setattr(tables, "SCALE", 2.0)
    monkeypatch.setattr(tables, "LEVELS", [1, 2, 3])


KEPT = {
    "positions": (120, 16),
    "scaled": (60,),
    "lists": (4,),
    "arrays": (60,),
    "decorated": (200,),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_function_that_computes_is_answered_from_memory(name):
    kept = Kept(getattr(tables, name))
    assert kept.again(*KEPT[name]) == 4, kept.left  # three calls to know it, one to prove it
    assert not kept.left


def test_arguments_that_differ_have_results_of_their_own():
    kept = Kept(tables.positions)
    assert kept.again(120, 16) == 4
    assert kept.again(120, 12) == 5
    assert kept.again(120, width=12, times=3) == 0
    assert kept.again(120, 16, times=2) == 2


def test_an_integer_and_a_float_of_its_value_are_two_arguments():
    kept = Kept(lambda n: [n] * 3000 + [tables.slow(1)] * 20)
    assert kept.again(2) == 4
    assert type(kept.call(2.0)[0]) is float
    assert type(kept.call(True)[0]) is bool
    assert kept.call(-0.0)[0].hex() != kept.call(0.0)[0].hex()


def described(n):
    """A table with an attribute of its own."""
    return [[math.sin(i * j) * described.scale for j in range(n)] for i in range(n)]


described.scale = 1.0


def test_an_attribute_of_the_function_itself_is_watched(monkeypatch):
    monkeypatch.setattr(described, "scale", 1.0)
    kept = Kept(described)
    assert kept.again(60) > 0, kept.left
    described.scale = 2.0
    assert kept.again(60, times=1) == 0
    assert kept.again(60) > 0, kept.left


def with_defaults(n, shift=1.0, *, scale=1.0):
    return [[math.sin(i * j + shift) * scale for j in range(n)] for i in range(n)]


@pytest.mark.parametrize("of_the_first", [False, True])
def test_defaults_that_are_set_on_what_stands_in_its_place_are_those_of_the_function(of_the_first):
    before = with_defaults.__defaults__, with_defaults.__kwdefaults__
    kept = Kept(with_defaults)
    stand_ins = [functools.wraps(with_defaults)(lambda *args, **kwargs: kept.call(*args, **kwargs)) for _ in range(2)]
    for one in stand_ins:
        kept.call.stands_in(one)
        assert (one.__defaults__, one.__kwdefaults__) == before
    try:
        for _ in range(6):
            stand_ins[0](60)
        assert kept.acted > 0, kept.left
        named = with_defaults if of_the_first else stand_ins[1]
        for change in ({"__defaults__": (0.5,)}, {"__kwdefaults__": {"scale": 3.0}}):
            for name, value in change.items():
                setattr(named, name, value)
            for one in (*stand_ins, *stand_ins):
                assert one(60) == with_defaults(60)
        assert with_defaults.__defaults__ == stand_ins[0].__defaults__ == (0.5,)
        assert with_defaults(60) == with_defaults(60, 0.5, scale=3.0)
    finally:
        with_defaults.__defaults__, with_defaults.__kwdefaults__ = before


def test_what_flatout_calls_in_between_is_no_part_of_a_call():
    from flatout.kept.observed_call import observe

    seen = observe(lambda: between(), (), {})
    assert not seen.refused


def between():
    return called_by_flatout()


exec(  # a function of one of flatout's modules, which stands in between
    "def called_by_flatout():\n    return id(3) and 1.0",
    called_by := {"__name__": "flatout.fixes.core.site"},
)
called_by_flatout = called_by["called_by_flatout"]


def test_a_collection_of_garbage_that_meets_a_call_is_no_part_of_it():
    kept, clocked, thresholds = Kept(tables.lists), [], gc.get_threshold()

    def looked(phase, info):
        clocked.append(time.time())

    gc.callbacks.append(looked)
    gc.set_threshold(1, 1, 1)
    try:
        assert kept.again(40) > 0, kept.left
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(looked)
    assert clocked
    assert gc.isenabled()


REFUSED = {
    "drawn": (4,),
    "drawn_in_python": (4,),
    "clocked": (4,),
    "printed": (4,),
    "noted": (4,),
    "remembered": (4,),
    "counted": (4,),
    "by_name": (4,),
    "twice": (4,),
    "through_cache": (4,),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_that_does_more_than_compute_is_called_each_time(name, capsys):
    counting, calls = tables.around(getattr(tables, name))
    kept = Kept(getattr(tables, name))
    kept.call._function = counting
    for _ in range(40):
        kept.call(*REFUSED[name])
    assert kept.acted == 0
    assert len(calls) == 40
    assert len(kept.left) == 1
    capsys.readouterr()


def test_what_is_written_to_or_read_from_elsewhere_is_called_each_time(tmp_path):
    (tmp_path / "numbers").write_text("1\n2\n3\n4\n")
    for function, given in (
        (tables.written, torch.ones(4)),
        (tables.appended, [1]),
        (tables.same_memory, torch.ones(4)),
        (tables.from_file, str(tmp_path / "numbers")),
        (tables.learned, torch.ones(4, requires_grad=True)),
    ):
        kept = Kept(function)
        for _ in range(8):
            kept.call(given)
        assert kept.acted == 0, function
        assert kept.left or function in (tables.written, tables.appended), function


def test_every_call_gets_memory_of_its_own():
    kept = Kept(tables.positions)
    for _ in range(8):
        table = kept.call(120, 16)
        assert same_bits(table, tables.positions(120, 16))
        table.add_(1)
    assert kept.acted == 4
    lists = Kept(tables.lists)
    for _ in range(8):
        found = lists.call(4)
        assert found == tables.lists(4)
        found["rows"][1].append("mine")
    assert lists.acted == 4


def change_scale():
    tables.SCALE = 3.0


def change_level():
    tables.LEVELS[1] = 7


def add_level():
    tables.LEVELS.append(9)


@pytest.mark.parametrize("change", [change_scale, change_level, add_level])
def test_a_global_that_changes_is_seen_by_the_next_call(change):
    kept = Kept(tables.scaled)
    assert kept.again(60) == 4
    change()
    assert kept.again(60, times=1) == 0
    assert kept.again(60) == 5


def test_another_function_in_place_of_one_that_is_called_is_seen(monkeypatch):
    kept = Kept(tables.positions)
    assert kept.again(120, 16) == 4
    monkeypatch.setattr(tables, "angle", lambda i, j, width: float(i + j))
    assert kept.again(120, 16, times=1) == 0
    monkeypatch.undo()
    kept = Kept(tables.positions)
    assert kept.again(120, 16) == 4
    code = tables.angle.__code__
    tables.angle.__code__ = (lambda i, j, width: 5.0).__code__
    try:
        assert kept.again(120, 16, times=1) == 0
    finally:
        tables.angle.__code__ = code


def by_version(tensor):
    tensor[1, 2] = 1


def past_the_version(tensor):
    tensor.data[1, 2] = 1


def by_numpy(tensor):
    tensor.numpy()[1, 2] = 1


def in_its_form(tensor):
    tensor.t_()


def other_memory(tensor):
    tensor.data = torch.eye(300) * 2


@pytest.mark.parametrize("change", [by_version, past_the_version, by_numpy, in_its_form, other_memory])
def test_a_tensor_that_is_written_to_is_seen_whoever_writes(change):
    kept, adjacency = Kept(tables.edges), torch.eye(300)
    assert kept.again(adjacency) == 4, kept.left
    change(adjacency)
    assert kept.again(adjacency, times=1) == 0
    assert kept.again(adjacency) == 5


def test_attributes_of_a_module_are_followed_where_its_code_reads_them():
    grid = tables.Grid()
    kept = Kept(tables.Grid.table)
    assert kept.again(grid) == 4, kept.left
    with torch.no_grad():
        grid.weight.add_(1)  # which the table is not made from
    assert kept.again(grid, times=2) == 2
    for change in (
        lambda: grid.offsets.add_(1),
        lambda: setattr(grid, "offsets", torch.ones(6)),
        lambda: grid.__dict__.update(size=1),
        lambda: grid.levels.update(b=5.0),
        lambda: setattr(grid, "levels", {"a": 1.0, "b": 4.0}),
    ):
        change()
        assert kept.again(grid, times=1) == 0
        assert kept.again(grid, times=6) >= 3  # 5, once it is known


def test_two_modules_have_results_of_their_own():
    one, other = tables.Grid(), tables.Grid()
    other.levels["b"] = 9.0
    kept = Kept(tables.Grid.table)
    assert kept.again(one) == 4
    assert kept.again(other) == 5
    assert kept.again(one, times=1) == 1


def test_a_module_in_the_memory_of_one_that_is_gone_is_another_one():
    kept = Kept(tables.Grid.table)
    for number in range(6):
        grid = tables.Grid()
        grid.levels["b"] = float(number)
        assert kept.again(grid, times=2) == 0
        del grid


@pytest.mark.parametrize("method", ["lazily", "of_weight", "of_step"])
def test_what_a_module_keeps_or_changes_is_never_wrong(method):
    grid, kept = tables.Grid(), Kept(getattr(tables.Grid, method))
    for step in range(60):
        grid.step = step
        with torch.no_grad():
            grid.weight.add_(1)
        given = kept.call(grid)
        assert same_bits(given, kept.plain(grid))
        assert method != "lazily" or given is grid.kept
    assert kept.acted == 0
    assert kept.left


def test_settings_of_torch_are_part_of_what_was_given():
    kept = Kept(tables.positions)
    assert kept.again(120, 16) == 4
    torch.set_default_dtype(torch.float64)
    try:
        assert kept.again(120, 16) == 0
    finally:
        torch.set_default_dtype(torch.float32)
    assert kept.again(120, 16, times=1) == 1
    with torch.no_grad():
        assert kept.again(120, 16, times=3) == 0
    with torch.inference_mode():
        assert kept.call(120, 16).is_inference()


def test_nothing_is_answered_on_other_threads_in_forked_processes_and_under_tracing():
    kept = Kept(tables.positions)
    assert kept.again(120, 16) == 4
    told = []
    thread = threading.Thread(target=lambda: told.append(kept.again(120, 16)))
    thread.start()
    thread.join()
    assert told == [0]
    constant = Kept(tables.grown)
    before = constant.again(3)
    assert before == 4
    torch.jit.trace(lambda x: x + constant.call(3).sum(), torch.ones(1), check_trace=False)
    assert constant.acted == before
    assert kept.acted == 4
    process = os.fork()
    if process == 0:
        before = kept.acted
        kept.call(120, 16)
        os._exit(kept.acted - before)
    assert os.waitpid(process, 0)[1] == 0


def given_back(rows):
    tables.slow(4)
    return rows


def given_inside(rows):
    tables.slow(4)
    return {"rows": rows["inner"], "more": [1]}


@pytest.mark.parametrize("make", [lambda: [1, 2], lambda: {"inner": [1]}, list, dict])
@pytest.mark.parametrize("function", [given_back, given_inside])
def test_what_is_given_is_returned_itself(function, make):
    if function is given_inside:
        make = {"inner": make()}.copy
    kept = Kept(function)
    for _ in range(8):
        rows = make()
        if function is given_inside:
            rows["inner"] = type(rows["inner"])(rows["inner"])
        given, wanted = kept.call(rows), function(rows)
        assert (given is wanted) or (given["rows"] is wanted["rows"])
    assert kept.acted == 0
    assert kept.left == [f"{function.__name__}: it returns what it is given"]


def test_a_function_that_nobody_has_any_more_is_forgotten_with_its_results():
    kept = Kept(tables.lists)
    assert kept.again(4) > 0
    ref = weakref.ref(kept.call)
    del kept
    gc.collect()
    assert ref() is None


def secretly(kept, key_result):
    """Put another result in place of what is kept."""
    for call in kept.call._calls.values():
        call.result = key_result


@pytest.mark.parametrize("on_change", ["stop", "warn"])
def test_a_proof_that_fails_ends_the_keeping_for_good(on_change):
    from flatout.kept.kept_result import KeptResult

    kept = Kept(tables.positions, on_change)
    assert kept.again(120, 16) == 4
    secretly(kept, KeptResult(torch.zeros(120, 16)))
    kept.call._reports.pace.due = True
    if on_change == "stop":
        with pytest.raises(ChangedTooLate, match="after 4 calls answered from memory"):
            kept.call(120, 16)
    else:
        with pytest.warns(RuntimeWarning, match="positions returned other values"):
            assert same_bits(kept.call(120, 16), tables.positions(120, 16))
    assert kept.failed
    assert kept.again(120, 16) == 0


def test_results_that_were_seen_once_take_no_more_memory_than_those_that_are_kept(monkeypatch):
    monkeypatch.setattr(kept_function, "_MOST_BYTES", 3 * 8 * 200 * 200)
    kept = Kept(tables.arrays)
    for _ in range(3):
        for number in (200, 199, 198, 197, 196):
            kept.call(number)
    assert kept.call._num_bytes <= kept_function._MOST_BYTES
    assert not kept.call.off, kept.left
    small = Kept(tables.arrays)
    monkeypatch.setattr(kept_function, "_MOST_BYTES", 100)
    assert small.again(60) == 0
    assert "returns more than" in small.left[0]


def nearest(points, k):
    """A part of a larger tensor, as a script returns it."""
    tables.slow(3)
    return torch.cdist(points, points).topk(k + 1, largest=False).indices[..., 1:]


def of_table_or_points(points, table):
    tables.slow(3)
    return points * 2 if len(points) < 20 else table


def test_a_function_that_is_known_is_watched_once_for_what_comes_anew_in_each_step():
    kept = Kept(nearest)
    served = []
    for step in range(8):
        points = torch.rand(2, 20, 3, generator=torch.Generator().manual_seed(step))
        served.append(kept.again(points, 4, times=5))
    assert served == [1, 2, 2, 4, 4, 4, 4, 4]  # the first of all is proven in addition
    assert not kept.left
    assert len(kept.call._calls) == 1


def test_a_part_of_a_tensor_comes_back_as_a_part_that_may_be_written_to():
    kept, points = Kept(nearest), torch.rand(1, 20, 3)
    assert kept.again(points, 4) > 0
    one, other = kept.call(points, 4), kept.call(points, 4)
    plain = nearest(points, 4)
    assert (one.stride(), one.storage_offset()) == (plain.stride(), plain.storage_offset())
    assert one._is_view() == plain._is_view()
    one.zero_()
    assert same_bits(other, plain)


def test_another_way_through_a_known_function_that_returns_what_it_read_is_called_each_time():
    kept, table = Kept(of_table_or_points), torch.ones(20, 3)
    few, many = torch.rand(6, 10, 3).unbind(), torch.rand(20, 3)
    for points in few:
        kept.again(points, table, times=5)
    assert kept.call._tally.used > kept_function._KNOWN
    for _ in range(4):
        assert kept.call(many, table) is table


def scaled_in_place(points, k):
    tables.slow(3)
    if k > 9:
        points.mul_(2)
    return points.cumsum(0) + len(tables.SEEN)


def noted(points, k):
    tables.slow(3)
    if k > 9:
        tables.SEEN.append(k)
    return points.cumsum(0) + len(tables.SEEN)


@pytest.mark.parametrize("function", [scaled_in_place, noted])
def test_another_way_through_a_known_function_that_writes_is_taken_each_time(function, monkeypatch):
    monkeypatch.setattr(tables, "SEEN", [])
    kept = Kept(function)
    for k in range(5):
        kept.again(torch.rand(20, 3), k, times=5)
    assert kept.call._tally.used > kept_function._KNOWN
    points, other = torch.rand(20, 3), torch.rand(20, 3)
    for turn in range(4):
        before, length = points.clone(), len(tables.SEEN)
        given = kept.call(points, 10)
        if function is scaled_in_place:
            assert same_bits(points, before * 2)
        else:
            assert len(tables.SEEN) == length + 1
        assert same_bits(given, points.cumsum(0) + len(tables.SEEN)), turn
    assert kept.again(other, 1, times=2) >= 0


def test_what_a_known_function_is_given_once_is_given_up():
    kept = Kept(nearest)
    for step in range(200):
        points = torch.rand(1, 20, 3, generator=torch.Generator().manual_seed(step))
        kept.again(points, 4, times=4 if step < 4 else 1)
    assert kept.call.off
    assert "changes between calls" in kept.left[0]


def test_what_hardly_ever_comes_back_is_given_up():
    kept = Kept(tables.scaled)
    for number in range(400):
        kept.call(number % 200 + 1)
    assert kept.acted == 0
    assert kept.call.off
    assert kept.left


def test_few_results_are_kept_the_latest_of_them():
    kept = Kept(lambda n: [n] * 10 + [tables.slow(1)] * 2)
    for number in range(70):
        kept.again(number, times=4)
    assert len(kept.call._calls) == 64
    assert kept.again(69, times=2) == 2
    assert kept.again(0, times=1) == 0


def test_what_is_quick_is_not_kept(monkeypatch):
    monkeypatch.setattr(kept_function, "_WORTH", 0.33)
    kept = Kept(tables.quick)
    assert kept.again(4) == 0
    assert "takes longer than a third" in kept.left[0]


def test_an_error_of_the_function_s_is_its_own():
    kept = Kept(tables.positions)
    for _ in range(5):
        with pytest.raises(TypeError, match=r"cannot be interpreted|not supported"):
            kept.call("four", 8)
    assert kept.again(120, 16) == 4


WEIGHTS = np.arange(40)


def of_weights_or_rows(rows, k):
    tables.slow(3)
    if k == 8:
        return torch.from_numpy(WEIGHTS[3:])
    return torch.from_numpy(rows[2:] if k == 9 else rows * k)


@pytest.mark.parametrize("k", [8, 9])
def test_a_part_of_what_a_known_function_reads_is_returned_itself(k):
    kept, rows = Kept(of_weights_or_rows), [np.arange(30) + number for number in range(6)]
    for number in range(5):
        kept.again(rows[number], number, times=5)
    assert kept.call._tally.used > kept_function._KNOWN
    for _ in range(3):
        assert kept.call(rows[5], k).numpy().ctypes.data == of_weights_or_rows(rows[5], k).numpy().ctypes.data


LIMITS = [0.0, 1.0]


def cut(rows, limits=LIMITS):
    tables.slow(3)
    return [max(each, limits[0]) + 1 for each in rows] if limits is LIMITS else list(limits)


def test_a_default_that_is_asked_for_by_identity_is_no_value():
    kept = Kept(cut)
    kept.again([0.25, 0.5])
    for limits in ([0.0, 1.0], LIMITS):
        assert kept.call([0.25, 0.5], limits) == cut([0.25, 0.5], limits)
    assert "asks whether something is LIMITS itself" in kept.left[0]


def of_pair(one, other, of):
    tables.slow(3)
    return [len(one), one is other, of in one]


def test_one_list_that_is_given_twice_is_not_two_that_are_equal():
    kept, rows, none = Kept(of_pair), [1, 2], float("nan")
    assert kept.again(rows, rows, 1.0) == 4
    assert kept.call(rows, [1, 2], 1.0) == [2, False, True]
    assert kept.again([rows], [rows], 1.0) > 0
    for within in ([none], [float("nan")]):
        for _ in range(6):
            assert kept.call(within, within, none) == [1, True, within[0] is none]


def test_a_list_that_holds_itself_is_given_as_it_is():
    rows = [1]
    rows.append(rows)
    kept = Kept(of_pair)
    for _ in range(6):
        assert kept.call(rows, rows, 1) == [2, True, True]
    assert (kept.acted, kept.left) == (0, [])


def around_the_rows(rows, k):
    tables.slow(3)
    if k == 1:
        return float(rows.base.sum())
    if k == 2:
        return float(rows.as_strided((20,), (1,)).sum())
    return float(np.lib.stride_tricks.as_strided(rows, (20,), (8,)).sum())


@pytest.mark.parametrize("k", [1, 2, 3])
def test_memory_around_an_array_is_not_what_was_given(k):
    kept, whole = Kept(around_the_rows), np.ones(20)
    rows = torch.from_numpy(whole)[:4] if k == 2 else whole[:4]
    for _ in range(4):
        assert kept.call(rows, k) == 20
    whole[9] = 5
    assert kept.call(rows, k) == 24


def of_library(n):
    tables.slow(3)
    return [torch.MY_SCALES[0] * n, float(torch.MY_TABLE.sum()), MY_LEVELS["low"]]  # noqa: F821


def test_data_that_a_script_keeps_in_modules_of_others_is_followed(monkeypatch):
    import builtins

    monkeypatch.setattr(torch, "MY_SCALES", [2.0], raising=False)
    monkeypatch.setattr(torch, "MY_TABLE", torch.ones(3), raising=False)
    monkeypatch.setattr(builtins, "MY_LEVELS", {"low": 1}, raising=False)
    kept = Kept(of_library)
    for change in (
        lambda: torch.MY_SCALES.insert(0, 3.0),
        lambda: torch.MY_TABLE.add_(1),
        lambda: builtins.MY_LEVELS.update(low=0),
    ):
        assert kept.again(4) > 0, kept.left
        change()
        assert kept.again(4, times=1) == 0


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self):
        """What others may be registered as."""


class Round:
    pass


def is_shape(thing):
    tables.slow(3)
    return [isinstance(thing, Shape)]


def test_a_class_that_is_registered_counts_from_then_on():
    kept, thing = Kept(is_shape), Round()
    assert kept.again(thing) == 4
    Shape.register(Round)
    assert kept.call(thing) == [True]


def test_a_gradient_that_is_asked_for_meanwhile_is_seen():
    kept, out = Kept(lambda out: [out.retains_grad, tables.slow(3)]), torch.ones(3, requires_grad=True) * 2
    assert kept.again(out) == 4
    out.retain_grad()
    assert kept.call(out)[0]


class Scene:
    def __init__(self):
        self.rows = [torch.ones(3)]


def of_scene(scene):
    tables.slow(3)
    return scene.rows[0] * 2


def test_what_is_given_lives_no_longer_than_without():
    kept = Kept(of_scene)
    for _ in range(5):
        scene = Scene()
        row = weakref.ref(scene.rows[0])
        for _ in range(4):
            kept.call(scene)
        del scene
        assert row() is None
    assert kept.acted > 0


def flat(points):
    tables.slow(3)
    return (points * 2).view(-1)


def test_a_view_of_a_whole_tensor_comes_back_as_one():
    kept, points = Kept(flat), torch.rand(4, 3)
    with torch.no_grad():
        assert kept.again(points) == 4
        given, plain = kept.call(points), flat(points)
    assert given._is_view() == plain._is_view() is True
    for one in (given, plain):
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            one.mul_(torch.ones(12, requires_grad=True))


@pytest.mark.parametrize("number", [40, 40_000])
def test_what_another_process_writes_is_seen(number):
    kept, shared = Kept(flat), torch.ones(number).share_memory_()
    assert kept.again(shared) > 0, kept.left
    process = os.fork()
    if process == 0:
        shared.numpy()[-1] = 5
        os._exit(0)
    os.waitpid(process, 0)
    assert kept.call(shared)[-1] == 10


def curved(points):
    tables.slow(3)
    return (points**2).sum(1).detach()


def test_who_watches_python_or_the_tensors_of_a_graph_sees_each_call():
    kept, points, packed, entered = Kept(curved), torch.rand(4, 3, requires_grad=True), [], []
    assert kept.again(points) == 4
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor, lambda tensor: tensor):
        kept.call(points)
    sys.setprofile(lambda frame, event, _: entered.append(event) if frame.f_code is curved.__code__ else None)
    try:
        kept.call(points)
    finally:
        sys.setprofile(None)
    assert (bool(packed), entered[0], kept.acted) == (True, "call", 4)


def of_setting(n):
    return [torch.is_anomaly_enabled()] * n + [tables.slow(3)]


def nested(depth):
    return [nested(depth - 1)] if depth else [tables.slow(3)]


def test_settings_that_are_asked_for_are_no_constants():
    kept = Kept(of_setting)
    kept.again(2)
    with torch.autograd.set_detect_anomaly(True):
        assert kept.call(2) == of_setting(2)
    assert kept.left
    deep, limit = Kept(nested), sys.getrecursionlimit()
    assert deep.again(150) == 4
    sys.setrecursionlimit(len(inspect.stack()) + 50)
    try:
        with pytest.raises(RecursionError):
            deep.call(150)
    finally:
        sys.setrecursionlimit(limit)
    assert deep.again(150, times=1) == 1


class Frozen:
    """Attributes that code writes past its own `__setattr__`, and never reads."""

    seen = 0

    def __setattr__(self, name, value):
        raise AttributeError(name)

    def note(self, k):
        super().__setattr__("seen", k)


def looked_at(thing, k):
    tables.slow(3)
    if k > 9:
        object.__setattr__(thing, "seen", k)
    return [k]


def looked_at_by_itself(thing, k):
    tables.slow(3)
    if k > 9:
        thing.note(k)
    return [k]


@pytest.mark.parametrize("function", [looked_at, looked_at_by_itself])
def test_attributes_that_are_set_by_what_object_has_are_written_each_time(function):
    kept, thing = Kept(function), Frozen()
    for k in (1, 2, 3, 4, 12, 13, 14):
        for _ in range(5):
            kept.call(Frozen(), k)
            kept.call(thing, k)
    for k in (11, 10, 11, 10, 10):
        kept.call(thing, k)
        assert thing.seen == k


class Layers:
    def __init__(self):
        self.sizes = [4, 2]


def are_own(layers, sizes):
    tables.slow(3)
    return [sizes is layers.sizes, *sizes]


@pytest.mark.parametrize("own_first", [False, True])
def test_a_list_that_is_reached_in_another_way_too_is_not_one_of_its_value(own_first):
    kept, layers = Kept(are_own), Layers()
    for _ in range(5):
        for own in (own_first, not own_first):
            given = layers.sizes if own else [4, 2]
            for _ in range(3):
                assert kept.call(layers, given) == [own, 4, 2]
    assert kept.acted > 0


def test_a_function_that_is_always_given_what_it_reads_is_given_up():
    kept, layers = Kept(are_own), Layers()
    for _ in range(60):
        assert kept.call(layers, layers.sizes) == [True, 4, 2]
    assert (kept.acted, kept.call.off) == (0, True)
