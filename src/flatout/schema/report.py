"""All that a renderer may show."""

from dataclasses import dataclass

from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.run import Run

__all__ = ["Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A Run with everything that was concluded from it."""

    run: Run
    breakdown: Breakdown
    headroom: tuple[Ceiling, ...] = ()
    findings: tuple[Finding, ...] = ()
    folder: str = ""  # where the recording lies
