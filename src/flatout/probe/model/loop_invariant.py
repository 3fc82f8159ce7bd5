"""Operations of a step that give what they gave a step before, because nothing they are given has changed.

Two steps are watched by a dispatch mode, on the CPU, in a deep run, where nothing is compiled: all that runs outside of
backward passes, optimizers and loaders (`step_stretch`). Values are numbered: a tensor from outside by itself and by
how often it was written to, a result by its operation and the numbers of what that was given. An operation of the
second step is unchanging when the first had it with the same numbers. What draws random numbers has none; what depends
on weights that learn, or on the batch, has others.
"""

import contextlib
import weakref
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Seams
from flatout.probe.core.user_places import caller
from flatout.probe.model.step_stretch import StepStretch
from flatout.schema.run import Frame, LoopInvariant

__all__ = ["PROBE", "LoopInvariantWatch"]

_FIRST_STEP = 3  # by then what a model makes at its first pass, and keeps, is there
_MOST_PLACES = 6
_MOST_OPERATIONS = 50_000  # of a step, that are followed
_PLACED_NS = 10_000  # what takes less is not worth a look at the stack
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_UNKNOWN = "empty"  # in the name of what makes memory without contents


class LoopInvariantWatch:
    """Watches one step, and the next one."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._stretch = StepStretch(event_log)
        self._steps = 0
        self._first: _Pass | None = None
        self._second: _Pass | None = None
        self.around = self._stretch.around
        self.called = self._stretch.called
        self.backward = self._stretch.leave

    def install(self, seams: Seams) -> None:
        """Be told where stretches of a step begin and end."""
        self._stretch.install()

    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps == _FIRST_STEP:
            self._first = _Pass(None, self._stretch)
            self._stretch.begin(self._first)
        elif self._steps == _FIRST_STEP + 1:
            self._second = _Pass(self._first, self._stretch)
            self._stretch.begin(self._second)
        elif self._steps == _FIRST_STEP + 2:
            self._stretch.begin(None)

    def stop(self) -> None:
        """The last step is over."""
        self._stretch.stop()

    def facts(self) -> tuple[LoopInvariant, ...]:
        """Return the lines with such operations, the costliest first; nothing without a second step."""
        return () if self._second is None else self._second.facts()


_Number = tuple[object, ...]
"""What a value is known by: a tensor from outside and how often it was written to, or a place among what was made."""

_Numbers = list[_Number | None]


class _Pass(TorchDispatchMode):
    """The operations of one step, and of what they were made: equal numbers, equal values."""

    def __init__(self, before: "_Pass | None", stretch: StepStretch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before = before
        self._stretch = stretch
        self._given: dict[int, weakref.ref[Any]] = {}  # tensors from outside
        self._made: dict[int, tuple[weakref.ref[Any], int, _Number | None]] = {}  # with how often they were written to
        self._done: dict[_Number, int] = {}
        self._seen = 0
        self._costs = _Costs()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and take it into account."""
        if not self._stretch.is_open or self._seen >= _MOST_OPERATIONS:
            return func(*args, **(kwargs or {}))
        self._seen += 1
        leaves, numbers = [], None
        with contextlib.suppress(Exception):  # a tensor that counts no writes, for instance: a probe ends no script
            leaves = tree_leaves((args, kwargs))
            numbers = [self._number(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        start = perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        taken = perf_counter_ns() - start
        self._costs.whole_ns[not self._stretch.in_module] += taken
        with contextlib.suppress(Exception):
            self._take(func, leaves, numbers, (result, _written(func, args, kwargs or {})), taken)
        return result

    def _number(self, tensor: torch.Tensor) -> _Number | None:
        """Return what the value of a tensor is known by, None where it may be another one each time."""
        ref, version, number = self._made.get(id(tensor), (None, 0, None))
        if ref is not None and ref() is tensor:
            return number if tensor._version == version else None  # written to through a view
        if tensor.requires_grad and tensor.is_leaf:  # it learns, if not by an optimizer of torch
            return None
        if self._before is None:
            self._given[id(tensor)] = weakref.ref(tensor)
        else:
            known = self._before._given.get(id(tensor))
            if known is None or known() is not tensor:
                return None
        return (id(tensor), tensor._version)

    def _take(self, func: Any, leaves: list[Any], numbers: _Numbers | None, made: Any, taken: int) -> None:
        """Note what an operation has made, and written to."""
        known = numbers is not None and None not in numbers and _repeatable(func)
        place = self._place(func, leaves, numbers) if known else None
        results = [each for each in tree_leaves(made) if torch.is_tensor(each)]
        for position, tensor in enumerate(results):
            number = None if place is None else (place, position)
            self._made[id(tensor)] = (weakref.ref(tensor), tensor._version, number)
        if self._before is None:
            return
        if place is None:
            self._costs.other(results, written=bool(made[1]))
            return
        at = caller(2) if taken > _PLACED_NS else None
        own = [] if any(returned.alias_info for returned in func._schema.returns) else results
        self._costs.add(at, not self._stretch.in_module, func._overloadpacket.__name__, taken, own)

    def _place(self, func: Any, leaves: list[Any], numbers: _Numbers | None) -> int | None:
        """Return the place of an operation among those of the first pass, None where that did not have it."""
        plain = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        key = (func, *(leaf if isinstance(leaf, _PLAIN) else id(leaf) for leaf in plain), *(numbers or ()))
        if self._before is None:
            return self._done.setdefault(key, len(self._done))
        return self._before._done.get(key)

    def facts(self) -> tuple[LoopInvariant, ...]:
        """Return the lines with unchanging operations, the costliest first."""
        return self._costs.facts()


class _Costs:
    """What unchanging operations took, by line, and inside or outside of outermost modules."""

    def __init__(self) -> None:
        self.whole_ns = [0, 0]  # of all operations: inside modules, outside
        self._spent: dict[tuple[Frame | None, bool], dict[str, int]] = {}
        self._fresh: dict[int, tuple[dict[str, int], str, int]] = {}  # memory that one of them made

    def add(self, place: Frame | None, outside: bool, name: str, taken: int, results: list[Any]) -> None:
        """Count an operation that made `results`."""
        spent = self._spent.setdefault((place, outside), {})
        spent[name] = spent.get(name, 0) + taken
        for tensor in results:
            self._fresh[tensor.untyped_storage()._cdata] = spent, name, taken

    def other(self, results: list[Any], *, written: bool) -> None:
        """Take another operation: what was made to be written to each time cannot be kept."""
        for tensor in results:
            spent, name, taken = self._fresh.pop(tensor.untyped_storage()._cdata, ({}, "", 0))
            if written and name:
                spent[name] -= taken

    def facts(self) -> tuple[LoopInvariant, ...]:
        """Return the lines, the costliest first."""
        found = [
            LoopInvariant(
                place=place,
                operation=max(spent, key=lambda name: spent[name]),
                seconds=sum(spent.values()) / 1e9,
                whole_s=self.whole_ns[outside] / 1e9,
                outside=outside,
            )
            for (place, outside), spent in self._spent.items()
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds)[:_MOST_PLACES])


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments that an operation writes to."""
    if not func._schema.is_mutable:
        return []
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    aliases = {one.name: one.alias_info for one in func._schema.arguments if one.alias_info is not None}
    return [given[name] for name, alias in aliases.items() if alias.is_write and name in given]


def _repeatable(func: Any) -> bool:
    """Return whether an operation gives the same for the same: no random numbers, no memory as it happens to be.

    A mark for a profiler (`zero_grad` and `record_function` leave some) gives nothing that could be kept.
    """
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    return not drawn and func.namespace != "profiler" and _UNKNOWN not in func._overloadpacket.__name__


PROBE = Probe(
    name="loop-invariant",
    make=lambda deep: LoopInvariantWatch(deep.event_log),
    install=LoopInvariantWatch.install,
    step=LoopInvariantWatch.step,
    called=lambda watch, module, given: watch.called(module),
    around=lambda watch, module, inner: watch.around(module, inner),
    backward=lambda watch, tensor: watch.backward(),
    stop=LoopInvariantWatch.stop,
    causes={"unchanging": LoopInvariantWatch.facts},
    after=("operations",),
)
