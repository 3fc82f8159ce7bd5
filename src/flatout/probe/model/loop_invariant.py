"""Operations of the forward pass that give what they gave a step before, because nothing they are given has changed.

Two passes of one module in two steps are watched by a dispatch mode, on the CPU, in a deep run, where nothing is
compiled. Values are numbered: a tensor from outside by itself and by how often it was written to, a result by its
operation and the numbers of what that was given. An operation of the second pass is unchanging when the first had it
with the same numbers. What draws random numbers has none; what depends on weights that were updated, or on the batch,
has others.
"""

import contextlib
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import caller
from flatout.probe.model.forward_pass import plain_on_cpu, within
from flatout.schema.run import Frame, LoopInvariant

__all__ = ["PROBE", "LoopInvariantWatch"]

_FIRST_STEP = 3  # by then what a model makes at its first pass, and keeps, is there
_MOST_PLACES = 4
_PLACED_NS = 10_000  # what takes less is not worth a look at the stack
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_UNKNOWN = "empty"  # in the name of what makes memory without contents


class LoopInvariantWatch:
    """Watches the first pass of one module in a step, and in the next one."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._steps = self._watched = 0
        self._module = 0
        self._first: _Pass | None = None
        self._second: _Pass | None = None

    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or what watches while `inner` runs."""
        if self._second is not None or self._steps < _FIRST_STEP or self._steps == self._watched:
            return inner
        if self._first is not None and id(module) != self._module:
            return inner
        if not plain_on_cpu(module, self._event_log):
            return inner
        self._watched, self._module = self._steps, id(module)
        watched = _Pass(self._first)
        self._first, self._second = (watched, None) if self._first is None else (self._first, watched)
        return within(watched, inner)

    def facts(self) -> tuple[LoopInvariant, ...]:
        """Return the lines with such operations, the costliest first; nothing without a second pass."""
        return () if self._second is None else self._second.facts()


_Number = tuple[object, ...]
"""What a value is known by: a tensor from outside and how often it was written to, or a place among what was made."""

_Numbers = list[_Number | None]


class _Pass(TorchDispatchMode):
    """The operations of one pass, and of what they were made: equal numbers, equal values."""

    def __init__(self, before: "_Pass | None") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before = before
        self._given: dict[int, weakref.ref[Any]] = {}  # tensors from outside
        self._made: dict[int, tuple[weakref.ref[Any], int, _Number | None]] = {}  # with how often they were written to
        self._done: dict[_Number, int] = {}
        self._whole_ns = 0
        self._costs: dict[Frame | None, dict[str, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and take it into account."""
        leaves, numbers = [], None
        with contextlib.suppress(Exception):  # a tensor that counts no writes, for instance: a probe ends no script
            leaves = tree_leaves((args, kwargs))
            numbers = [self._number(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        start = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - start
        self._whole_ns += taken
        with contextlib.suppress(Exception):
            self._take(func, leaves, numbers, result, taken)
        return result

    def _number(self, tensor: torch.Tensor) -> _Number | None:
        """Return what the value of a tensor is known by, None where it may be another one each time."""
        ref, version, number = self._made.get(id(tensor), (None, 0, None))
        if ref is not None and ref() is tensor:
            return number if tensor._version == version else None  # written to through a view
        if self._before is None:
            self._given[id(tensor)] = weakref.ref(tensor)
        else:
            known = self._before._given.get(id(tensor))
            if known is None or known() is not tensor:
                return None
        return (id(tensor), tensor._version)

    def _take(self, func: Any, leaves: list[Any], numbers: _Numbers | None, result: Any, taken: int) -> None:
        known = numbers is not None and None not in numbers and _repeatable(func)
        place = self._place(func, leaves, numbers) if known else None
        written = leaves if func._schema.is_mutable else []
        for position, tensor in enumerate(each for each in tree_leaves((result, written)) if torch.is_tensor(each)):
            number = None if place is None else (place, position)
            self._made[id(tensor)] = (weakref.ref(tensor), tensor._version, number)
        if self._before is not None and place is not None:
            costs = self._costs.setdefault(caller(2) if taken > _PLACED_NS else None, {})
            name = func._overloadpacket.__name__
            costs[name] = costs.get(name, 0) + taken

    def _place(self, func: Any, leaves: list[Any], numbers: _Numbers | None) -> int | None:
        """Return the place of an operation among those of the first pass, None where that did not have it."""
        plain = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        key = (func, *(leaf if isinstance(leaf, _PLAIN) else id(leaf) for leaf in plain), *(numbers or ()))
        if self._before is None:
            return self._done.setdefault(key, len(self._done))
        return self._before._done.get(key)

    def facts(self) -> tuple[LoopInvariant, ...]:
        """Return the lines with unchanging operations, the costliest first."""
        found = [
            LoopInvariant(
                place=place,
                operation=max(costs, key=lambda name: costs[name]),
                seconds=sum(costs.values()) / 1e9,
                whole_s=self._whole_ns / 1e9,
            )
            for place, costs in self._costs.items()
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds)[:_MOST_PLACES])


def _repeatable(func: Any) -> bool:
    """Return whether an operation gives the same for the same: no random numbers, no memory as it happens to be."""
    return torch.Tag.nondeterministic_seeded not in func.tags and _UNKNOWN not in func._overloadpacket.__name__


PROBE = Probe(
    name="loop-invariant",
    make=lambda deep: LoopInvariantWatch(deep.event_log),
    step=LoopInvariantWatch.step,
    around=LoopInvariantWatch.around,
    causes={"unchanging": LoopInvariantWatch.facts},
    after=("operations",),
)
