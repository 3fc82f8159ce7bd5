"""Which fixes are tried on a script, and in which order."""

import pytest
from tests.unit.report.specimens import finding, run

from flatout.analysis.breakdown import account
from flatout.engine.candidates import candidates
from flatout.fixes.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


def nothing(site):
    """Do nothing."""


def fix(name, equivalence=Equivalence.BITWISE, phases=(Phase.INPUT,), **options):
    return Fix(name=name, equivalence=equivalence, phases=phases, patch=nothing, **options)


RUN = run(input=60, forward=30, host=10)


def offered(*catalog, findings=(), **options):
    found = candidates(RUN, account(RUN), findings, catalog=catalog, **options)
    return [candidate.selection.label for candidate in found]


def test_stricter_classes_come_first_and_more_headroom_before_less():
    catalog = [
        fix("bits", Equivalence.PRECISION, (Phase.INPUT,)),
        fix("little", phases=(Phase.HOST,)),
        fix("much", phases=(Phase.INPUT,)),
        fix("round", Equivalence.ROUNDING, (Phase.FORWARD,)),
    ]
    assert offered(*catalog) == ["much", "little", "round", "bits"]


def test_what_cannot_give_two_percent_is_not_tried_unless_it_is_named():
    idle = fix("idle", phases=(Phase.OPTIMIZER,))
    assert offered(idle) == []
    assert offered(idle, only=frozenset({"idle"})) == ["idle"]


@pytest.mark.parametrize(
    ("equal", "expected"),
    [
        (Equivalence.BITWISE, ["a"]),
        (Equivalence.ROUNDING, ["a", "b"]),
        (Equivalence.PRECISION, ["a", "b", "c"]),
        (Equivalence.STATISTICAL, ["a", "b", "c", "d"]),
    ],
)
def test_classes_weaker_than_asked_are_left_out(equal, expected):
    catalog = [fix(name, equivalence) for name, equivalence in zip("abcde", Equivalence, strict=True)]
    assert offered(*catalog, equal=equal) == expected


def test_what_changes_the_optimization_is_tried_only_when_named():
    batch = fix("larger-batch", Equivalence.SEMANTIC, on_request=True)
    assert offered(batch, fix("plain")) == ["plain"]
    assert offered(batch, fix("plain"), only=frozenset({"larger-batch"})) == ["larger-batch"]


def test_every_setting_that_fits_the_script_is_a_candidate_best_first():
    workers = fix("loader-workers", choices=lambda run: ({"workers": 2}, {"workers": 1}))
    assert offered(workers) == ["loader-workers workers=2", "loader-workers workers=1"]


def test_a_fix_that_does_not_fit_the_script_is_no_candidate():
    assert offered(fix("tf32", choices=lambda run: ())) == []


def test_the_ceiling_is_what_is_left_without_the_phases_and_the_findings_it_addresses_are_its_reasons():
    catalog = [fix("workers", addresses=("IN003",))]
    found = candidates(RUN, account(RUN), [finding(code="IN003"), finding(code="HO001")], catalog=catalog)
    assert found[0].ceiling == pytest.approx(2.5)
    assert found[0].reasons == ("IN003",)


def test_a_fix_that_needs_a_variable_cannot_be_switched_inside_a_process():
    found = candidates(RUN, account(RUN), (), catalog=[fix("a", switchable=True, environment={"X": "1"})])
    assert not found[0].switchable
