"""The user's functions that backward passes call: hooks, and the backward of autograd Functions.

For a few steps the interpreter's own profile function is ours while a pass runs, where nobody else's is: what the
engine calls begins an entry, and the first function of the user's in it is what the entry is known by. Only the thread
that calls `backward` is seen, which on the CPU runs all of it.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import torch

from flatout.probe.core.user_places import is_user_file
from flatout.schema.backward import BackwardPython
from flatout.schema.run import Frame

__all__ = ["PythonEntries"]

_ENGINE = ("torch.autograd.graph", "_engine_run_backward")
_LEAVES = frozenset(("numpy", "tolist", "item"))
_RECOMPUTES = "torch.utils.checkpoint"
_COMPARED = 1024  # first numbers of a tensor that are looked at
_MOST_TENSORS = 8


@dataclass(slots=True)
class _Entry:
    """What the engine has called, while it runs."""

    frame: FrameType
    kind: str
    began: float
    user: FrameType | None = None
    given: list[tuple[Any, ...]] = field(default_factory=list)
    gave: bool = False  # something back
    ignored: bool = False  # a forward pass that is done again
    steps: bool = False  # an optimizer
    calls: int = 0
    leaves: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Total:
    """All runs of one function."""

    kind: str
    runs: int = 0
    seconds: float = 0.0
    calls: int = 0
    leaves: Counter[str] = field(default_factory=Counter)
    observes: bool = True


class PythonEntries:
    """Follows Python functions that the engine calls."""

    def __init__(self) -> None:
        """None was seen yet."""
        self.steps = 0
        self._totals: dict[CodeType, _Total] = {}
        self._entry: _Entry | None = None

    def begin(self) -> None:
        """A pass begins."""
        if sys.getprofile() is None:
            self._entry = None
            sys.setprofile(self._event)

    def end(self) -> None:
        """It is over."""
        if sys.getprofile() == self._event:
            sys.setprofile(None)
        self._entry = None

    def seen_hooks(self) -> bool:
        """Return whether there is a hook of the user's."""
        return any(total.kind == "hook" for total in self._totals.values())

    def facts(self) -> tuple[BackwardPython, ...]:
        """Return the functions, the one that takes most first."""
        steps = max(1, self.steps)
        found = [
            BackwardPython(
                place=Frame(code.co_filename, code.co_firstlineno, code.co_qualname),
                kind=total.kind,
                runs=total.runs / steps,
                seconds=total.seconds / steps,
                calls=total.calls / total.runs,
                leaves={name: number / total.runs for name, number in total.leaves.items()},
                observes=total.observes and total.kind == "hook",
            )
            for code, total in self._totals.items()
        ]
        return tuple(sorted(found, key=lambda one: -one.seconds)[:12])

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        try:
            self._take(frame, event, argument)
        except Exception:  # a probe ends no script
            sys.setprofile(None)

    def _take(self, frame: FrameType, event: str, argument: Any) -> None:
        entry = self._entry
        if event == "call":
            if entry is None:
                if _is_engine(frame.f_back):
                    entry = self._entry = _Entry(frame, _kind(frame), perf_counter())
                else:
                    return
            self._called(entry, frame)
        elif entry is None:
            return
        elif event == "c_call":
            entry.calls += 1
            if (name := getattr(argument, "__name__", "")) in _LEAVES:
                entry.leaves[name] += 1
        elif event == "return":
            if frame is entry.user:
                entry.gave = argument is not None
            if frame is entry.frame:
                self._entry = None
                self._add(entry)

    def _called(self, entry: _Entry, frame: FrameType) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if entry.user is None and is_user_file(frame.f_code.co_filename):
            entry.user = frame
            since = perf_counter()
            entry.given = list(_states(_arguments(frame))) if entry.kind == "hook" else []
            entry.began += perf_counter() - since
        elif entry.user is None and name == _RECOMPUTES:
            entry.ignored = True
        elif name.startswith("torch.optim") and frame.f_code.co_name == "step":
            entry.steps = True

    def _add(self, entry: _Entry) -> None:
        if entry.user is None or entry.ignored:
            return
        seconds = perf_counter() - entry.began
        total = self._totals.setdefault(entry.user.f_code, _Total(entry.kind))
        changed = entry.steps or any(after != before for before, after in _compared(entry.given))
        total.runs += 1
        total.seconds += seconds
        total.calls += entry.calls
        total.leaves += entry.leaves
        total.observes = total.observes and not (entry.gave or changed)


def _is_engine(frame: FrameType | None) -> bool:
    return frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) == _ENGINE


def _kind(frame: FrameType) -> str:
    return "function" if frame.f_globals.get("__name__") == "torch.autograd.function" else "hook"


def _arguments(frame: FrameType) -> Iterator[Any]:
    """Yield the tensors that a function is given, with the gradients of leaves."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)]
    for value in (frame.f_locals.get(name) for name in names):
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor
                if tensor.is_leaf and tensor.grad is not None:
                    yield tensor.grad


def _states(tensors: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for tensor, _ in zip(tensors, range(_MOST_TENSORS), strict=False):
        yield tensor, *_state(tensor)


def _state(tensor: Any) -> tuple[Any, ...]:
    grad = id(tensor.grad) if tensor.is_leaf else 0
    with torch.no_grad():
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
        numbers = tensor.detach().view(-1)[:_COMPARED].view(torch.uint8).numpy().tobytes() if plain else b""
    return tensor._version, grad, numbers


def _compared(given: list[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    for tensor, *before in given:
        yield tuple(before), _state(tensor)
