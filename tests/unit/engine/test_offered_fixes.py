"""Findings name the fixes that may act on the script, and no others."""

import pytest
from tests.unit.fixes.core.test_fitness import DRAWN, a_run
from tests.unit.report.specimens import finding

from flatout.engine import offered_fixes
from flatout.engine.offered_fixes import with_offered_fixes
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


@pytest.mark.parametrize(
    ("named", "offered"),
    [
        (("cached-input", "compiled-input"), ()),
        (("loader-workers", "compiled-input"), ("loader-workers",)),
        (("compiled-input", "gc-control"), ("gc-control",)),
        (("a fix of a newer version",), ("a fix of a newer version",)),
    ],
)
def test_fixes_that_cannot_act_are_left_out(named, offered):
    (found,) = with_offered_fixes([finding(fixes=named)], a_run(DRAWN))
    assert found.fixes == offered


def test_a_fix_that_cannot_read_a_recording_stays_named(monkeypatch):
    fix = Fix(name="odd", equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=print, choices=lambda run: 1 / 0)
    monkeypatch.setattr(offered_fixes, "find_fix", lambda name: fix)
    (found,) = with_offered_fixes([finding(fixes=("odd",))], a_run())
    assert found.fixes == ("odd",)
