"""All that a renderer may show."""

from dataclasses import dataclass

from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.recipe import Recipe
from flatout.schema.run import Run
from flatout.schema.trial import Comparison, Trial, Untried

__all__ = ["Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A Run with everything that was concluded from it, and what came of the cures that were tried."""

    run: Run
    breakdown: Breakdown
    headroom: tuple[Ceiling, ...] = ()
    findings: tuple[Finding, ...] = ()
    folder: str = ""  # where the recording lies
    trials: tuple[Trial, ...] = ()  # in the order in which they were made
    untried: tuple[Untried, ...] = ()  # fixes that address a finding and were not tried
    recipe: Recipe | None = None  # None: no recipe was made, or there is nothing to keep
    confirmation: Comparison | None = None  # the whole recipe against the untouched script, in fresh processes
