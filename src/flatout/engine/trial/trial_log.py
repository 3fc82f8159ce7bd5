"""The trials of one search, and the candidates that came to none; who is told how far it is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from flatout.engine.trial.journal import TrialJournal
from flatout.schema.trial import EDITED_SOURCE, Candidate, Selection, Trial, Untried, Verdict

__all__ = ["SearchWatch", "TrialLog"]

_FOREIGN = "this edit is none of those that this tune was given"


class SearchWatch:
    """Who is told how far a search is."""

    def __init__(self, tell: Callable[[str, int, float], None], until: float) -> None:
        """Tell it of a search that ends at `until`, on the monotonic clock."""
        self.stage = "trials"
        self._tell = tell
        self._until = until

    def steps(self, steps: int) -> None:
        """Tell how many steps the execution under way has made."""
        self._tell(self.stage, steps, self._until - time.monotonic())


class TrialLog:
    """The trials that were made: in the journal, too; and the fixes that came to none, with the reason."""

    def __init__(self, journal: TrialJournal, offered: Sequence[Candidate]) -> None:
        """Begin with those in the journal; an edit is code, and none is kept that is not among those `offered`."""
        known = [candidate.selection for candidate in offered]
        self.trials = [_own(trial, known) for trial in journal.read()]
        self._left: dict[str, Untried] = {}  # by fix
        self._journal = journal

    def add(self, trial: Trial) -> None:
        """Take one more.

        Raises:
            OSError: it could not be written to disk.
        """
        self.trials.append(trial)
        self._journal.append(trial)

    @property
    def untried(self) -> tuple[Untried, ...]:
        """The fixes that address a finding, and of which no setting was tried."""
        tried = {trial.candidate.selection.key for trial in self.trials}
        return tuple(each for name, each in self._left.items() if name not in tried)

    def leave(self, candidate: Candidate, reason: str) -> None:
        """Note why one is not tried, if a finding offered it."""
        fix = candidate.selection.key
        if candidate.reasons:
            self._left.setdefault(fix, Untried(fix=fix, reason=reason, findings=candidate.reasons))

    def change(self, trial: Trial, verdict: Verdict, reason: str) -> None:
        """Give one of them another verdict, here alone."""
        self.trials[self.trials.index(trial)] = replace(trial, verdict=verdict, reason=reason)


def _own(trial: Trial, known: Sequence[Selection]) -> Trial:
    """Return a trial of the journal, not kept where it is of an edit that this tune does not know."""
    selection = trial.candidate.selection
    if selection.fix != EDITED_SOURCE or selection in known or trial.verdict is not Verdict.KEPT:
        return trial
    return replace(trial, verdict=Verdict.UNDECIDED, reason=_FOREIGN)
