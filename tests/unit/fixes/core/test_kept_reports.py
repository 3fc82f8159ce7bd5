"""What the fixes that keep things tell of them, of `flatout.fixes.core.kept_reports` and `flatout.kept.reports`."""

import pytest

from flatout.errors import ChangedTooLate
from flatout.fixes.core.kept_reports import reports_of
from flatout.fixes.core.site import Site
from flatout.kept.reports import Reports
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.model.modules import ModuleWatch
from flatout.schema.trial import Selection


@pytest.fixture
def site():
    return Site(Selection("kept-reads"), Seams(), ModuleWatch(EventLog(id, id)))


def test_what_is_left_alone_is_the_reason_that_the_fix_gives(site):
    reports = reports_of(site, "stop")
    reports.left("table.csv was opened to write")
    reports.left("another reason")
    assert site.stood_back == "table.csv was opened to write" and not site.failure


def test_what_was_wrong_ends_the_fix_and_the_training(site):
    with pytest.raises(ChangedTooLate, match="Leave kept-reads out"):
        reports_of(site, "stop").wrong("a table came out changed", "It was handed out 3 times", "kept-reads")
    assert site.failure == "a table came out changed" and not site.enabled


def test_a_training_may_go_on_with_a_warning():
    heard = []
    with pytest.warns(RuntimeWarning, match="came out changed"):
        Reports(failed=heard.append, on_change="warn").wrong("a table came out changed", "It was kept", "kept-reads")
    assert heard == ["a table came out changed"]


def test_a_training_is_told_what_became_of_a_fix_and_a_trial_is_not(site, capsys):
    site.purpose = "run"
    reports_of(site, "warn").failed("nothing is kept any more")
    site.purpose = "timing"
    reports_of(site, "warn").failed("a second thing")
    said = capsys.readouterr().err
    assert "kept-reads: nothing is kept any more" in said and "second" not in said
