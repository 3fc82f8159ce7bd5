"""What a page shows of cures as changes of the user's source: whoever makes the page has them written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flatout.schema.finding import Finding

__all__ = ["NO_CHANGES", "ReportedChange", "ReportedChanges"]


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """One cure: what it is, and the lines of a unified diff that writes it."""

    what: str
    diff: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportedChanges:
    """The cures of findings, as far as they can surely be written, and the recipe."""

    findings: Mapping[Finding, ReportedChange] = field(default_factory=dict)
    recipe: ReportedChange | None = None


NO_CHANGES = ReportedChanges()
