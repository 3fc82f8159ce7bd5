"""The trials of a search, taken up from a journal that may have come with somebody's project."""

import pytest

from flatout.engine.trial.journal import TrialJournal
from flatout.engine.trial.trial_log import TrialLog
from flatout.schema.trial import Candidate, Equivalence, Selection, Trial, Verdict


def candidate(name, fix="edited-source", reasons=()):
    settings = {"edit": name, "diff": name, "files": {}} if fix == "edited-source" else {}
    return Candidate(selection=Selection(fix, settings), equivalence=Equivalence.BITWISE, reasons=reasons)


@pytest.fixture
def journal(tmp_path):
    found = TrialJournal(tmp_path)
    for number, one in enumerate((candidate("given"), candidate("foreign"), candidate("", "tf32")), start=1):
        found.append(Trial(number=number, candidate=one, verdict=Verdict.KEPT))
    return found


def test_an_edit_that_this_tune_was_not_given_is_not_kept(journal):
    found = TrialLog(journal, [candidate("given")]).trials
    assert [trial.verdict for trial in found] == [Verdict.KEPT, Verdict.UNDECIDED, Verdict.KEPT]
    assert "none of those that this tune was given" in found[1].reason


def test_each_edit_that_was_not_tried_is_told_by_its_own_name(journal):
    log = TrialLog(journal, [])
    for name in ("given", "one", "other"):
        log.leave(candidate(name, reasons=("HO004",)), "the budget ended first")
    assert [each.fix for each in log.untried] == ["edit one", "edit other"]
