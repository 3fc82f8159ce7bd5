"""A probe of the deep run as data: what makes it, at which moments it is called, and which facts it gives.

Every module of `probe/forward`, `backward`, `loader`, `model` and `system` that defines `PROBE` is one;
`probe/deep.py` goes through them. A new probe is one file, and one field of `schema.run.Causes` for its fact.
"""

import functools
import graphlib
import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.schema.run import Causes, Step

__all__ = ["DeepContext", "Probe", "probes"]

Watch = TypeVar("Watch")

_PACKAGES = tuple(f"flatout.probe.{room}" for room in ("backward", "forward", "loader", "model", "system"))


@dataclass(slots=True, kw_only=True)
class DeepContext:
    """What a deep run tells its probes.

    Attributes:
        event_log: what the training thread passes, event by event.
        fail: takes the probes away after a failure of one of them.
        in_step: whether the training is within a step that counts: no validation, not between epochs.
        between_epochs: whether it is between two epochs.
        optimizers: those that made a step.
        over: those of a training that is over, in a script that makes several.
        modules: the outermost modules.
        aside: whether this step runs with another setting than the script's, to learn what that costs.
        offer: `offer(name, switch)` asks for blocks of steps with `switch(True)` and `switch(False)` in turn.
        since_unix_s: when the first step had ended.
        unread: identities of parameters whose gradients were followed in some steps, and read by nobody in Python.
    """

    event_log: EventLog
    fail: Callable[[Exception], None]
    in_step: Callable[[], bool]
    between_epochs: Callable[[], bool]
    optimizers: Callable[[], Iterable[Any]]
    modules: Callable[[], Iterable[Any]]
    aside: Callable[[], bool]
    offer: Callable[[str, Callable[[bool], None]], None]
    since_unix_s: float = 0.0
    unread: set[int] = field(default_factory=set)
    over: Callable[[], Collection[Any]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(Generic[Watch]):
    """One probe of the deep run. `make(context)` gives its watch, which all else is called with first.

    Attributes:
        install: puts its seams in place, before the script runs.
        start: the first step has ended.
        step: `step(watch, step, number)`, at the end of each later step.
        called: `called(module, (args, kwargs))`, before an outermost module is called.
        around: `around(module, inner)` gives what is called in place of an outermost module, while it may be looked at.
        around_always: the same in every step.
        backward: `backward(tensor)`, before a backward pass from that tensor.
        stop: the last step has ended.
        measure: what is measured on copies afterwards, when the script has ended; given what was found so far.
        causes: what it gives, by the field of `Causes`.
        trials: the same of what `measure` found.
        after: probes that are made and called before this one.
    """

    name: str
    make: Callable[[DeepContext], Watch]
    install: Callable[[Watch, Seams], None] | None = None
    start: Callable[[Watch], None] | None = None
    step: Callable[[Watch, Step, int], None] | None = None
    called: Callable[[Watch, Any, Any], None] | None = None
    around: Callable[[Watch, Any, Callable[..., Any]], Callable[..., Any]] | None = None
    around_always: Callable[[Watch, Any, Callable[..., Any]], Callable[..., Any]] | None = None
    backward: Callable[[Watch, Any], None] | None = None
    stop: Callable[[Watch], None] | None = None
    measure: Callable[[Watch, Causes], None] | None = None
    causes: Mapping[str, Callable[[Watch], Any]] = field(default_factory=dict)
    trials: Mapping[str, Callable[[Watch], Any]] = field(default_factory=dict)
    after: tuple[str, ...] = ()


@functools.cache
def probes() -> tuple[Probe[Any], ...]:
    """Return every probe of the deep run, in the order in which they are made and called."""
    found: dict[str, Probe[Any]] = {}
    for package in map(importlib.import_module, _PACKAGES):
        for file in pkgutil.iter_modules(package.__path__):
            probe = getattr(importlib.import_module(f"{package.__name__}.{file.name}"), "PROBE", None)
            if probe is not None:
                found[probe.name] = probe
    order = graphlib.TopologicalSorter({name: found[name].after for name in sorted(found)})
    return tuple(found[name] for name in order.static_order())
