"""Calls of the model on a batch that it has just been given, for outputs that no gradient comes back to.

A call is known by its tensors: the same objects, not written to since, in the step under way or the one before. Both
calls are in training mode: what is done in evaluation mode is another computation. Outputs that get a gradient are
wanted (two dropout masks of one batch, for instance), which a hook on them tells. Counters of torch's tell whether
weights were written to between the calls, and whether the second one writes to buffers or draws random numbers.
"""

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import caller
from flatout.probe.loader.loading import tensors_in
from flatout.schema.run import Frame, RepeatedForward

__all__ = ["PROBE", "RepeatWatch"]

_REMEMBERED = 64  # calls
_PLAIN = (bool, int, float, str, bytes, type(None))


class _Call(NamedTuple):
    """What a call is known by."""

    module: int
    tensors: tuple[tuple[weakref.ref[Any], int], ...]  # with how often each had been written to
    rest: tuple[object, ...]

    def repeats(self, other: "_Call") -> bool:
        """Return whether this call is given what `other` was."""
        if (self.module, self.rest, len(self.tensors)) != (other.module, other.rest, len(other.tensors)):
            return False
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(new() is old() is not None and version == before for (new, version), (old, before) in pairs)


class _Repeat(NamedTuple):
    """A call of this step that repeats another one."""

    place: Frame | None
    taken: int  # nanoseconds
    gradients: list[bool]  # that came to its outputs
    changed: bool  # weights or buffers were written to since the first call
    marked: bool  # it wrote to buffers, or drew random numbers


class RepeatWatch:
    """Clocks the calls that repeat another one."""

    def __init__(self, inside: Callable[[], bool]) -> None:
        """See nothing yet; `inside()` says whether a step is under way: validation is none."""
        self._inside = inside
        self._calls: deque[tuple[int, _Call, int]] = deque(maxlen=_REMEMBERED)  # step, call, writes to the module then
        self._open: list[_Repeat] = []  # of this step
        self._costs: dict[Frame | None, list[int]] = {}  # calls, nanoseconds, changed, marked
        self._steps = 0

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what clocks `inner`, a call of `module`, where it repeats another."""
        if not module.training or not self._inside():
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            known = _known(module, args, kwargs)
            same = [writes for _, earlier, writes in self._calls if known is not None and known.repeats(earlier)]
            before, drawn = (_writes(module), _drawn()) if same else (0, ())
            start = perf_counter_ns()
            outputs = inner(*args, **kwargs)
            taken, after = perf_counter_ns() - start, _writes(module)
            if same:
                marked = after != before or _drawn() != drawn
                self._open.append(_Repeat(caller(2), taken, _gradients(outputs), before != same[-1], marked))
            elif known is not None:
                self._calls.append((self._steps, known, after))
            return outputs

        return call

    def step(self, *_: object) -> None:
        """A step is over: what got no gradient in it was in vain; forget the calls of the step before."""
        for one in self._open:
            if not one.gradients:
                cost = self._costs.setdefault(one.place, [0, 0, 0, 0])
                for at, number in enumerate((1, one.taken, one.changed, one.marked)):
                    cost[at] += number
        self._open.clear()
        while self._calls and self._calls[0][0] < self._steps:
            self._calls.popleft()
        self._steps += 1

    def facts(self) -> tuple[RepeatedForward, ...]:
        """Return the places of such calls, that which took most first."""
        found = [
            RepeatedForward(
                place=place, count=count, steps=self._steps, seconds=taken / 1e9, changed=changed, marked=marked
            )
            for place, (count, taken, changed, marked) in self._costs.items()
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds))


def _known(module: Any, args: Any, kwargs: Any) -> _Call | None:
    """Return what a call is known by, None where it is given no tensor, or one that does not count what is written."""
    try:
        tensors = tuple((weakref.ref(tensor), tensor._version) for tensor in tensors_in((args, kwargs)))
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if not isinstance(leaf, torch.Tensor)]
        rest = tuple(leaf if isinstance(leaf, _PLAIN) else id(leaf) for leaf in leaves)
    except Exception:  # made in inference mode, for instance: a probe must not end the script
        return None
    return _Call(id(module), tensors, rest) if tensors else None


def _writes(module: Any) -> int:
    """Return how often the weights and buffers of a module were written to, -1 where that is not counted."""
    try:
        return sum(each._version for each in (*module.parameters(), *module.buffers()))
    except Exception:  # made in inference mode, or not made yet
        return -1


def _drawn() -> tuple[Any, ...]:
    """Return the states of torch's random numbers."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return tuple(each.get_state().numpy().tobytes() for each in (torch.default_generator, *devices))


def _gradients(outputs: Any) -> list[bool]:
    """Return a list that is no longer empty once a gradient has come to one of the outputs."""
    came: list[bool] = []
    with contextlib.suppress(Exception):  # outputs of a kind that takes no hooks: then they count as wanted
        for tensor in tensors_in(outputs):
            if tensor.requires_grad:
                tensor.register_hook(lambda _: came.append(True))
        return came
    return [True]


PROBE = Probe(
    name="repeated-forward",
    make=lambda deep: RepeatWatch(deep.in_step),
    step=RepeatWatch.step,
    around_always=RepeatWatch.around,
    causes={"repeated": RepeatWatch.facts},
)
