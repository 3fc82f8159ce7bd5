"""Run Python's garbage collector every so many steps instead of at arbitrary moments.

## What it does

At the first step in which it acts, it collects once, freezes the objects that live (`gc.freeze`) and switches the
automatic collector off; from then on it collects before every 200th forward pass. Loader workers keep their automatic
collector. Switching the fix off undoes all of that. `flatout.collect_rarely()` does the same in a script of your own,
before every 200th step of an optimizer.

## Why it helps

A full collection looks at every object there is. Where a script holds many (a data set of Python objects, a large
model), the training stands still meanwhile, at arbitrary moments. The mean step gains little: `gridworld_dqn` of
`benchmarks/planted` 0.98x in the fix's trial (0.88 to 1.08, n=27 pairs), a network that logs 64 Python objects a step
beside 300,000 dictionaries 1.07x in CPU time (0.88 to 1.19, n=7 pairs of 1000 steps; 2 cores of an Intel Xeon under
KVM, torch 2.13, beside other programs).

## How equal

BITWISE: nothing is computed differently; objects in reference cycles are freed at other moments.

## When it is wrong

Cycles that hold large tensors live longer: memory may grow between two collections. A script that controls the
collector itself (switched off, or objects frozen) is left alone. It is not tried where the deep run measured hardly any
collecting: of five outside programs, four spent 0.01 to 0.03% of their steps on it.
"""

import gc
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.bounds import within
from flatout.fixes.core.edit import SwitchLine
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "bound", "collect_rarely", "patch"]

_UNSEEN = 3.0  # full collections are rare, and a deep run is some seconds
_FROZEN = 0.1  # times what the collector looks at: only `gc.freeze` freezes that much
_EVERY = 200  # forward passes, or steps of an optimizer


class _Collector:
    """The state of the collector: whether it is ours, and how long ago it ran.

    From Python 3.12 on a collection itself freezes immortal objects, so some objects are always frozen.
    """

    def __init__(
        self, every: int, taken: Callable[[], None] = lambda: None, left: Callable[[str], None] = lambda reason: None
    ) -> None:
        self._every = every
        self._taken, self._left = taken, left
        self._passes = 0
        self._ours = False
        self._left_alone = False

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Count one forward pass; the call itself stays what it is."""
        self.count()
        return inner

    def count(self) -> None:
        """Count one, and collect where it is time."""
        if not self._ours and not self._left_alone:
            self._take()
        self._passes += 1
        if self._ours and self._passes >= self._every:
            self._passes = 0
            gc.collect()

    def _take(self) -> None:
        if not gc.isenabled() or gc.get_freeze_count() > _FROZEN * len(gc.get_objects()):
            self._left_alone = True
            self._left(f"the script has {'frozen objects' if gc.isenabled() else 'switched the collector off'} itself")
            return
        gc.collect()
        gc.freeze()
        gc.disable()
        self._ours = True
        self._taken()

    def in_child(self) -> None:
        """Let the collector run in a forked process: nothing counts steps there."""
        if self._ours:
            gc.enable()

    def give_back(self) -> None:
        """Let the collector run as before."""
        if self._ours:
            gc.unfreeze()
            gc.enable()
        self._ours, self._passes = False, 0


_COLLECTING: list[_Collector] = []  # what `collect_rarely` has set up in this process


def collect_rarely(every: int = _EVERY) -> None:
    """Let Python's garbage collector run before every `every`-th step of torch's optimizers, and at no other moment.

    At the first step it collects once and freezes the objects that live (`gc.freeze`). Forked processes, loader workers
    among them, keep their automatic collector. Where the script has switched the collector off or frozen objects
    before, nothing is done. It holds for the rest of the process; a second call changes nothing.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    if _COLLECTING:
        return
    collector = _Collector(every)
    _COLLECTING.append(collector)
    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: collector.count())
    os.register_at_fork(after_in_child=collector.in_child)


def bound(run: Run) -> float:
    """Return what no collections would give by the deep run's clock, with room for rare ones that it did not see."""
    seen = run.causes.collector if run.causes else None
    steps_s = sum(run.causes.phases_s.values()) if run.causes else 0.0
    if seen is None or steps_s <= 0:
        return math.inf
    if seen.called:  # the script calls for collections itself, and keeps them
        return 1.0
    spent = (_UNSEEN * seen.seconds + seen.longest_s) / steps_s
    return 1 / max(1e-3, 1 - spent)


def patch(site: "Site", *, every: int = _EVERY) -> None:
    """Collect every `every` forward passes of a trained module, and at no other moment."""
    collector = _Collector(every, lambda: site.hit("gc.disable"), site.stand_back)
    site.outermost.around_forward(collector.around)
    site.switch(lambda: None, collector.give_back)
    os.register_at_fork(after_in_child=collector.in_child)


FIX = Fix(
    name="gc-control",
    equivalence=Equivalence.BITWISE,
    phases=(Phase.HOST,),
    patch=patch,
    bounds={"every": within(1, 1_000_000)},
    bound=bound,
    addresses=("HO004",),
    switchable=True,
    edit=(
        SwitchLine(
            code="flatout.collect_rarely()",
            unless=("gc.disable", "gc.enable", "gc.freeze", "gc.set_threshold"),
            needs="flatout",
        ),
    ),
)
