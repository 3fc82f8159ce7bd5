"""What a tune says of fixes that a finding called for and that are not tried."""

from tests.unit.engine.trial.test_candidates import RUN, fix
from tests.unit.report.specimens import finding

from flatout.analysis.breakdown import account
from flatout.engine.trial.candidates import candidates
from flatout.engine.trial.untried import untried
from flatout.fixes.core.fix import Unfit
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence, Untried

SAID = (finding(code="IN002", max_speedup=1.9),)
ADDRESSES = {"addresses": ("IN002",)}


def left(*catalog, only=frozenset(), equal=Equivalence.PRECISION):
    offered = candidates(RUN, account(RUN), SAID, catalog=catalog, only=only, equal=equal)
    return untried(RUN, account(RUN), SAID, offered, catalog=catalog, only=only, equal=equal)


def reasons(*catalog, **options):
    return {each.fix: each.reason for each in left(*catalog, **options)}


def test_what_is_tried_and_what_no_finding_calls_for_is_not_listed():
    assert left(fix("tried", **ADDRESSES), fix("uncalled", choices=lambda run: Unfit("no loader"))) == ()


def test_a_fix_that_cannot_act_says_why():
    assert reasons(fix("workers", choices=lambda run: Unfit("samples are drawn"), **ADDRESSES)) == {
        "workers": "samples are drawn"
    }


def test_too_low_a_ceiling_is_said_with_its_figure():
    low = fix("low", bound=lambda run: 1.01, **ADDRESSES)
    dear = fix("dear", phases=(Phase.HOST,), least=2.0, bound=lambda run: 1.2, **ADDRESSES)
    assert reasons(low, dear) == {
        "low": "it could give at most 1.01x here",
        "dear": "it could give at most 1.71x here, and a trial is worth it from 2.0x on",
    }


def test_fixes_on_request_name_the_option():
    assert reasons(fix("larger", on_request=True, **ADDRESSES)) == {"larger": "tried on request only: --also larger"}


def test_a_weaker_class_comes_with_what_it_could_give():
    workers = fix("workers", Equivalence.STATISTICAL, **ADDRESSES)
    assert left(workers) == (
        Untried(
            fix="workers",
            reason="it keeps results less equal than --equal precision asks for (statistical)",
            equivalence=Equivalence.STATISTICAL,
            ceiling=1.9,
            findings=("IN002",),
        ),
    )
    assert left(workers, equal=Equivalence.STATISTICAL) == ()


def test_a_weaker_class_that_cannot_act_promises_nothing():
    odd = fix("odd", Equivalence.STATISTICAL, choices=lambda run: Unfit("no loader"), **ADDRESSES)
    assert [each.equivalence for each in left(odd)] == [None]


def test_nothing_is_said_of_others_where_the_user_names_fixes():
    workers = fix("workers", choices=lambda run: Unfit("samples are drawn"), **ADDRESSES)
    other = fix("other", choices=lambda run: Unfit("no loader"), **ADDRESSES)
    assert reasons(workers, other, only=frozenset({"workers"})) == {"workers": "samples are drawn"}
