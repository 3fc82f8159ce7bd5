"""Edits of the source as candidates, and their place among the fixes."""

from dataclasses import replace

from tests.unit.report.specimens import finding, run

from flatout.analysis.breakdown import account
from flatout.engine.trial.candidates import candidates
from flatout.engine.trial.edit_candidates import ProposedEdit, edit_candidates
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Step
from flatout.schema.trial import Equivalence, Selection

RUN = run(input=60, forward=30, host=10)


def edit(name, equivalence=Equivalence.BITWISE, weakest=None, **about):
    selection = Selection("edited-source", {"edit": name, "diff": "", "files": {}})
    cures = finding(**about) if about else None
    return ProposedEdit(selection=selection, finding=cures, equivalence=equivalence, weakest=weakest)


def made(*edits, equal=Equivalence.PRECISION, named=frozenset()):
    return edit_candidates(edits, RUN, account(RUN), equal=equal, named=named)


def test_an_edit_of_the_user_s_is_held_to_bit_equality_first_and_to_what_he_allows_then():
    (found,) = made(edit("change.diff"), equal=Equivalence.ROUNDING)
    assert (found.equivalence, found.weakest) == (Equivalence.BITWISE, Equivalence.ROUNDING)
    assert (found.least, found.switchable, found.reasons) == (0.0, False, ())


def test_an_edit_that_cures_a_finding_promises_bit_equality_and_what_the_finding_says():
    (found,) = made(edit("x", code="HO004", max_speedup=3.0, phase=Phase.HOST))
    assert (found.equivalence, found.weakest, found.ceiling) == (Equivalence.BITWISE, None, 3.0)
    assert (found.reasons, found.whole_epochs) == (("HO004",), False)


def test_an_edit_of_a_weaker_class_is_held_to_it_and_tried_where_that_is_allowed_or_its_rule_named():
    one = edit("x", Equivalence.ROUNDING, code="CO025", max_speedup=3.0)
    assert [each.equivalence for each in made(one, equal=Equivalence.ROUNDING)] == [Equivalence.ROUNDING]
    assert made(one, equal=Equivalence.BITWISE) == []
    assert len(made(one, equal=Equivalence.BITWISE, named=frozenset({"CO025"}))) == 1


def test_an_edit_may_have_its_weaker_class_where_that_is_allowed():
    one = edit("x", weakest=Equivalence.ROUNDING, code="CO022", max_speedup=3.0)
    (found,) = made(one)
    assert (found.equivalence, found.weakest) == (Equivalence.BITWISE, Equivalence.ROUNDING)
    assert made(one, equal=Equivalence.BITWISE)[0].weakest is None


def test_one_that_is_about_what_lies_between_steps_is_timed_by_whole_epochs():
    assert made(edit("x", code="EP002", max_speedup=2.0, phase=Phase.VALIDATION))[0].whole_epochs


def test_where_few_steps_make_the_mean_it_is_timed_by_whole_epochs():
    def whole_epochs(first_ms, others_ms):
        steps = []
        for number in range(100):
            wall_ns = round(1e6 * (others_ms if number % 20 else first_ms))
            phases = (wall_ns, *[0] * (len(STEP_PHASES) - 1))
            about = {"epoch": number // 20, "first_of_epoch": number % 20 == 0}
            steps.append(Step(start_ns=number, wall_ns=wall_ns, phases_ns=phases, **about))
        recorded = replace(RUN, steps=tuple(steps), outside=())
        one = edit("x", code="IN005", max_speedup=3.0, phase=Phase.INPUT)
        (found,) = edit_candidates([one], recorded, account(recorded), equal=Equivalence.PRECISION)
        return found.whole_epochs

    assert whole_epochs(first_ms=400, others_ms=3)
    assert not whole_epochs(first_ms=4, others_ms=3), "even steps"
    assert not whole_epochs(first_ms=40_000, others_ms=300), "epochs of 46 s"


def test_one_that_could_give_nothing_is_not_tried():
    assert made(edit("x", code="HO004", max_speedup=1.01)) == []


def test_the_user_s_come_first_and_those_of_findings_by_what_they_could_give():
    def fix(name, equivalence, phase):
        return Fix(name=name, equivalence=equivalence, phases=(phase,), patch=lambda site: None)

    catalog = [
        fix("much", Equivalence.BITWISE, Phase.INPUT),
        fix("little", Equivalence.BITWISE, Phase.HOST),
        fix("bits", Equivalence.PRECISION, Phase.INPUT),
    ]
    edits = [
        edit("small", code="HO004", max_speedup=1.05),
        edit("given.diff"),
        edit("large", code="SY002", max_speedup=9.0),
    ]
    found = candidates(RUN, account(RUN), (), catalog=catalog, edits=edits)
    assert [each.selection.label for each in found] == [
        "edit given.diff", "edit large", "edit small", "much", "little", "bits"
    ]  # fmt: skip


def test_one_on_request_is_tried_where_its_rule_is_named_alone():
    one = replace(edit("x", code="CO024", max_speedup=2.0), on_request=True)
    assert made(one) == []
    (found,) = made(one, named=frozenset({"CO024"}))
    assert (found.equivalence, found.reasons) == (Equivalence.BITWISE, ("CO024",))
