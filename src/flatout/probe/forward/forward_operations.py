"""The operations of one forward pass by the line that calls them, and copies among them that nothing needs.

The calls of outermost modules in one step are watched by a dispatch mode, on the CPU, in a deep run, where nothing is
compiled. What each result is used for is followed within the pass. What the shortest operation of a kind takes is timed
on tensors of a few numbers: the rest of an operation's time is its work.
"""

import contextlib
import os
import statistics
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import is_user_file, user_stack
from flatout.probe.model.forward_pass import plain_on_cpu, within
from flatout.schema.run import Frame, LineOperations, NeedlessCopy

__all__ = ["PROBE", "OperationsWatch"]

_AT_STEP = 8
_LEFT = {"addmm": 1, "mm": 0}  # products, and which argument has the rows
_FEW_ROWS = 4
_OFTEN = 6  # is the same matrix multiplied with few rows
_LEAST_OF_LINE = 8  # operations of a line in a pass
_MOST_PLACES = 100
_MOST_OPERATIONS = 50_000  # of a pass, that are followed
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_BROADCAST = frozenset(
    [
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "pow",
        "where",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "gt",
        "le",
        "ge",
        "masked_fill",
        "bitwise_and",
        "bitwise_or",
        "logical_and",
        "logical_or",
        "logical_xor",
        "atan2",
        "fmod",
        "remainder",
        "hypot",
        "addcmul",
        "addcdiv",
        "lerp",
    ]
)


class OperationsWatch:
    """Watches the forward passes of one step."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._steps = 0
        self._pass: _Pass | None = None

    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or in one step what watches while `inner` runs."""
        if self._steps != _AT_STEP or not plain_on_cpu(module, self._event_log):
            return inner
        self._pass = self._pass or _Pass()
        return within(self._pass, inner)

    def lines(self) -> tuple[LineOperations, ...]:
        """Return the lines that called operations often, those that took most first."""
        return () if self._pass is None else self._pass.lines()

    def copies(self) -> tuple[NeedlessCopy, ...]:
        """Return the lines that copied what need not be copied, those that took most first."""
        return () if self._pass is None else self._pass.copies()


@dataclass(slots=True)
class _Operation:
    """An operation of the pass."""

    name: str  # torch's, without underscores before it
    place: Frame | None
    direct: bool  # called by that line itself, by no library in between
    taken: int
    is_view: bool = False
    num_bytes: int = 0
    made_of: list[int] = field(default_factory=list)  # operations whose results it was given
    used_by: list[int] = field(default_factory=list)
    copies: str = ""  # the kind of copy that it may be
    storages: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()  # the identities of those that it was given
    rows: int = 0  # of a product with a matrix: those of the other factor


class _Pass(TorchDispatchMode):
    """The operations of the passes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations: list[_Operation] = []
        self._made: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._written: dict[int, int] = {}  # memory, and the last operation that wrote to it
        self._whole_ns = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and note it."""
        start = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - start
        self._whole_ns += taken
        if len(self._operations) < _MOST_OPERATIONS:
            with contextlib.suppress(Exception):  # tensors of any kind: a probe must not end the script
                self._note(func, args, kwargs or {}, result, taken)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any, taken: int) -> None:
        number = len(self._operations)
        place, direct = _called_at(sys._getframe(2))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        one = _Operation(func._overloadpacket.__name__.lstrip("_"), place, direct, taken)
        returns = func._schema.returns
        aliased = [each.alias_info for each in returns if each.alias_info is not None]
        one.is_view = bool(aliased) and not any(info.is_write for info in aliased)
        one.num_bytes = sum(each.nbytes for each in results)
        one.parameters = tuple(id(each) for each in given if isinstance(each, torch.nn.Parameter))
        if one.name in _LEFT and one.is_view is False:
            one.rows = len(args[_LEFT[one.name]])
        one.made_of = [made for made in map(self._origin, given) if made is not None]
        self._operations.append(one)
        for made in one.made_of:
            self._operations[made].used_by.append(number)
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write and torch.is_tensor(value):
                    self._written[_memory(value)] = number
        elif direct and not one.is_view and given and results:
            one.copies = self._kind(one, given, results[0], kwargs)
            one.storages = (_memory(given[0]), _memory(results[0])) if one.copies else ()
        for each in results:
            self._made[id(each)] = weakref.ref(each), number

    def _origin(self, tensor: torch.Tensor) -> int | None:
        """Return the operation that made a tensor, or None; a view stands for what it is a view of."""
        ref, number = self._made.get(id(tensor), (None, 0))
        if ref is None or ref() is not tensor:
            return None
        return number

    def _kind(self, one: _Operation, given: list[Any], result: torch.Tensor, kwargs: Any) -> str:
        first = given[0]
        if one.name == "repeat" or (one.name in ("clone", "to_copy") and _is_expanded(first)):
            return "repeat"
        if one.name == "clone" and first.stride() == result.stride():
            return "clone" if self._origin(first) is not None else ""
        if one.name == "cat" and len(given) > 1:
            return "growing"
        widened = (first.dtype, result.dtype) == (torch.float32, torch.float64)
        return "cast" if one.name == "to_copy" and widened else ""

    def lines(self) -> tuple[LineOperations, ...]:
        """Return the lines that called operations often, those that took most first."""
        floors = _floors()
        groups: dict[Frame, list[_Operation]] = defaultdict(list)
        for one in self._operations:
            if one.place is not None:
                groups[one.place].append(one)
        found = [_of_line(place, some, floors) for place, some in groups.items() if len(some) >= _LEAST_OF_LINE]
        return tuple(sorted(found, key=lambda each: -each.seconds)[:_MOST_PLACES])

    def copies(self) -> tuple[NeedlessCopy, ...]:
        """Return the lines that copied what need not be copied, those that took most first."""
        groups: dict[tuple[str, Frame | None], list[tuple[int, int]]] = defaultdict(list)
        for number, one in enumerate(self._operations):
            if one.copies and (lost := self._lost(number, one)) is not None:
                groups[one.copies, one.place].append(lost)
        found = [
            NeedlessCopy(
                kind=kind,
                place=place,
                count=len(lost),
                num_bytes=sum(size for size, _ in lost),
                seconds=sum(taken for _, taken in lost) / 1e9,
                whole_s=self._whole_ns / 1e9,
            )
            for (kind, place), lost in groups.items()
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds)[:_MOST_PLACES])

    def _lost(self, number: int, one: _Operation) -> tuple[int, int] | None:
        """Return bytes and nanoseconds of a copy that nothing needs; None where something may."""
        users = list(self._users(number))
        if not users:
            return None
        own = one.num_bytes, one.taken
        if one.copies == "repeat":
            return own if all(self._operations[user].name in _BROADCAST for user in users) else None
        if one.copies == "clone":
            return own if all(self._written.get(memory, -1) < number for memory in one.storages) else None
        if one.copies == "growing":  # what grew is copied once more at the same line, and is used for nothing else
            again = [self._operations[user] for user in users]
            grows = len(again) == 1 and again[0].name == "cat" and again[0].place == one.place
            return own if grows else None
        back = [self._operations[user] for user in users]
        if any(each.name != "to_copy" or each.num_bytes * 2 != one.num_bytes for each in back):
            return None
        return one.num_bytes, one.taken + sum(each.taken for each in back)

    def _users(self, number: int) -> Iterable[int]:
        """Yield the operations that are given a result, or a view of it."""
        for user in self._operations[number].used_by:
            if self._operations[user].is_view and self._operations[user].used_by:
                yield from self._users(user)
            else:
                yield user


def _of_line(place: Frame, some: list[_Operation], floors: dict[str, int]) -> LineOperations:
    """Return what the operations of a line take, by the medians of each kind: the machine may do other things too."""
    taken: dict[str, list[int]] = defaultdict(list)
    for one in some:
        taken[one.name].append(one.taken)
    views = {one.name for one in some if one.is_view} | _thin(some)
    usual = {name: statistics.median(times) for name, times in taken.items()}
    whole = {name: usual[name] * len(times) for name, times in taken.items()}
    least = {name: usual[name] if name in views else min(usual[name], _floor(floors, name)) for name in taken}
    return LineOperations(
        place=place,
        count=len(some),
        seconds=sum(whole.values()) / 1e9,
        floor_s=sum(least[name] * len(times) for name, times in taken.items()) / 1e9,
        update_s=floors[""] / 1e9,
        parameters=len({key for one in some for key in one.parameters}),
        kinds=tuple(sorted(whole, key=lambda name: -whole[name])[:4]),
    )


def _thin(some: list[_Operation]) -> set[str]:
    """Return the products of few rows with the same matrices again and again: with all rows, they are read once."""
    products = [one for one in some if one.rows]
    times = len(products) / max(1, len({one.parameters for one in products}))
    few = bool(products) and max(one.rows for one in products) <= _FEW_ROWS
    return {one.name for one in products} if few and times >= _OFTEN and products[0].parameters else set()


def _called_at(frame: Any) -> tuple[Frame | None, bool]:
    """Return the user's line above `frame`, and whether it stands there with nothing but torch's own wrappers between.

    Modules of torch are no wrappers: what they copy is no choice of the line's.
    """
    direct = True
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        file = frame.f_code.co_filename
        direct = direct and file.startswith(_TORCH) and f"{os.sep}nn{os.sep}" not in file
        frame = frame.f_back
    stack = user_stack(frame)
    return (Frame(*stack[0]), direct) if stack else (None, False)


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _floors() -> dict[str, int]:
    """Return the nanoseconds of operations on next to nothing, by kind."""
    aten = torch.ops.aten
    small, table, index = torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, dtype=torch.long)
    tries: dict[str, Callable[[], Any]] = {
        "": lambda: aten.add.Tensor(small, small),
        "addmm": lambda: aten.addmm.default(small, small, small),
        "embedding": lambda: aten.embedding.default(table, index),
    }
    return {name: round(statistics.median(_timed(call) for _ in range(40))) for name, call in tries.items()}


def _floor(floors: dict[str, int], name: str) -> int:
    return floors.get("addmm" if name in ("mm", "bmm", "baddbmm") else name, floors[""])


def _timed(call: Callable[[], Any]) -> int:
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


PROBE = Probe(
    name="forward-operations",
    make=lambda deep: OperationsWatch(deep.event_log),
    step=OperationsWatch.step,
    around=OperationsWatch.around,
    causes={"line_operations": OperationsWatch.lines, "needless_copies": OperationsWatch.copies},
    after=("slow-reductions",),
)
