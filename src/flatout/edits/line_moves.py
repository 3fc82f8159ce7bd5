"""Where a line has come to when others were written above it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from flatout.edits.reading.project import Project
from flatout.schema.facts import LoaderFacts

__all__ = ["line_now", "moved_loaders"]


def line_now(before: Sequence[str], now: Sequence[str], line: int) -> int:
    """Return where a line (from 1) has come to by the changes made so far, 0 where they changed the line itself."""
    for block in SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks():
        if block.a < line <= block.a + block.size:
            return line - block.a + block.b
    return 0


def moved_loaders(recorded: Iterable[LoaderFacts], before: Project, now: Project) -> tuple[LoaderFacts, ...]:
    """Return what was recorded of loaders, by the lines they stand on now; one whose line was changed is left out."""
    changed = {
        str(old.path): (old.lines, new.lines)
        for old, new in zip(before.sources, now.sources, strict=True)
        if old.code != new.code
    }
    found = []
    for facts in recorded:
        place = facts.created_at
        lines = changed.get(str(Path(place.file).resolve())) if place is not None else None
        if place is None or lines is None:
            found.append(facts)
        elif line := line_now(*lines, place.line):
            found.append(replace(facts, created_at=replace(place, line=line)))
    return tuple(found)
