"""An edit that cures a finding: what it does to the line, what it is called, and how equal it leaves a training."""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.written_edit import WrittenEdit
from flatout.schema.finding import Finding
from flatout.schema.trial import Equivalence

__all__ = ["EditPlace", "FindingEdit"]


@dataclass(frozen=True)
class EditPlace:
    """Where a finding's edit acts."""

    project: Project
    source: SourceFile
    statement: ast.stmt  # the innermost one on the finding's line
    finding: Finding

    def left(self, fact: str) -> WrittenEdit:
        """Return the project as it is, with the reason why, and the place unless that begins with one."""
        placed = any(fact.startswith(f"{each.shown}:") for each in self.project.sources)
        return WrittenEdit(self.project, left=(fact if placed else self.source.at(self.statement, fact),))


@dataclass(frozen=True, kw_only=True)
class FindingEdit:
    """One way to change the line of a finding; both functions take the arguments in `Rule.edits`.

    Attributes:
        write: makes the change, or says why it does not.
        words: names it where `flatout tune` tries it; an edit without is made by `flatout patch --findings` alone.
        equivalence: the class that it is held to.
        weakest: class that it may have instead, where that depends on what torch chooses.
        on_request: tried only where its rule is named: it leaves out what somebody may want, or changes the training.
        needs_trial: reading the source does not show that it is right, so that `flatout patch` leaves it to a tune.
    """

    write: Callable[..., WrittenEdit]
    words: Callable[..., str] | None = None
    equivalence: Equivalence = Equivalence.BITWISE
    weakest: Equivalence | None = None
    on_request: bool = False
    needs_trial: bool = False

    @property
    def held_to(self) -> str:
        """The class, and whether it is tried only on request."""
        return f"{self.equivalence}{', on request' if self.on_request else ''}"
