"""What a fix is: a cure with a name, the faults it addresses, what it promises, and the function that applies it."""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flatout.fixes.core.bounds import Bounds
from flatout.fixes.core.edit import Piece
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Equivalence

__all__ = ["Choices", "Fix", "Unfit", "always", "unbounded"]

Choices = Callable[[Run], tuple[Mapping[str, object], ...]]
"""From the recorded Run, the settings worth trying here, best first; `Unfit`, which is empty: it cannot act here."""


class Unfit(tuple[Mapping[str, object], ...]):
    """No settings, and why: `Unfit("it needs a CUDA device; this training runs on the CPU")`."""

    reason: str

    def __new__(cls, reason: str) -> "Unfit":
        """Take the reason: one line, with its facts."""
        made = super().__new__(cls)
        made.reason = reason
        return made


def always(run: Run) -> tuple[Mapping[str, object], ...]:
    """One candidate without settings."""
    return ({},)


def unbounded(run: Run) -> float:
    """Nothing is known of the most that it can give."""
    return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One cure.

    `patch(site, **settings)` runs in the training's process, before the script builds anything, and acts through
    `site` alone. `choices(run)` runs in the parent, without torch: it returns the settings to try for the script that
    `run` recorded, and `Unfit` with the reason where the fix does not apply (no GPU, the script does it already).
    `phases` are the phases of the step it can shorten: their share bounds what it can give, and so does the speed-up
    `bound(run)`.
    `switchable`: it takes effect, and stops, at the next step when it is switched; otherwise only from the start of a
    process. `least`: the ceiling below which a trial is not worth its time. `on_request`: tried only when the user
    names it. `replaces`: fixes that have nothing left to do once this one is kept. `seldom`: it helps few scripts, and
    no recording tells which, so it is tried after others of its class. `from_second_pass`: it gains most, or all, from
    the second pass over the data on, and trials show these.
    """

    name: str
    equivalence: Equivalence
    phases: tuple[Phase, ...]
    patch: Callable[..., None]
    choices: Choices = always
    bound: Callable[[Run], float] = unbounded
    least: float = 1.0
    addresses: tuple[str, ...] = ()
    switchable: bool = False
    on_request: bool = False
    seldom: bool = False
    from_second_pass: bool = False
    replaces: tuple[str, ...] = ()
    settles_s: float = 0.0  # longest that it may take at the start of a training (compilation)
    usual_s: float = 0.0  # what it takes there of a model of ordinary size; where it is more than 0, it is tried last
    bounds: Bounds = field(default_factory=dict)  # of every setting that is no flag
    environment: Mapping[str, str] = field(default_factory=dict)  # variables the process must start with
    edit: tuple[Piece, ...] = ()  # how `flatout patch` writes it in the user's code; empty: it cannot

    @property
    def page(self) -> str:
        """Return the fix's page: the docstring of the module that `patch` was written in."""
        return inspect.cleandoc(sys.modules[self.patch.__module__].__doc__ or "")

    @property
    def summary(self) -> str:
        """Return the first sentence of the page: the cure in one line."""
        return self.page.partition("\n")[0]

    def unfit(self, run: Run) -> str:
        """Return why it cannot act on the script that `run` recorded, an empty string where it may."""
        offered = self.choices(run)
        return "" if offered else getattr(offered, "reason", "") or "it has nothing to do here"
