"""Which fixes are tried on a script, and in which order."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import finding, run

from flatout.analysis.breakdown import account
from flatout.engine.trial.candidates import candidates, lifted
from flatout.fixes.core.catalog import find_fix
from flatout.fixes.core.fix import Fix
from flatout.rules.core.example import line
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER, Ceiling, LoaderFacts
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CollectorFacts, Frame, Utilization
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


@pytest.mark.parametrize(
    ("rounding", "bitwise", "order"),
    [
        (3.0, 1.1, ["rounds", "same"]),
        (3.0, 1.5, ["same", "rounds"]),
        (1.8, 1.1, ["same", "rounds"]),
    ],
)
def test_twice_the_speed_with_other_rounding_comes_before_a_little_with_the_same_bits(rounding, bitwise, order):
    catalog = [
        fix("same", phases=(Phase.INPUT,), addresses=("ME007",)),
        fix("rounds", Equivalence.ROUNDING, (Phase.INPUT,), addresses=("CO033",)),
    ]
    promised = (finding(code="CO033", max_speedup=rounding), finding(code="ME007", max_speedup=bitwise))
    assert offered(*catalog, findings=promised) == order


def test_what_compiles_comes_last_and_what_seldom_helps_after_others_of_its_class():
    catalog = [
        fix("compiled", Equivalence.ROUNDING, (Phase.INPUT,), usual_s=30.0),
        fix("bits", Equivalence.PRECISION, (Phase.HOST,)),
        fix("seldom", phases=(Phase.INPUT,), seldom=True),
        fix("little", phases=(Phase.HOST,)),
    ]
    assert offered(*catalog) == ["little", "seldom", "bits", "compiled"]


def test_what_seldom_helps_comes_in_its_turn_where_a_finding_names_it():
    catalog = [
        fix("seldom", phases=(Phase.INPUT,), seldom=True, addresses=("IN001",)),
        fix("little", phases=(Phase.HOST,)),
    ]
    assert offered(*catalog, findings=(finding(code="IN001", max_speedup=2.0),)) == ["seldom", "little"]


def test_what_cures_something_between_the_steps_is_timed_by_whole_epochs_and_switched_in_no_step():
    python = fix("python", phases=(Phase.HOST,), addresses=("EP004", "HO001"), switchable=True)
    for code, phase in (("EP004", Phase.EPOCH_GAP), ("HO001", Phase.HOST)):
        found = (finding(code=code, phase=phase, max_speedup=2.0),)
        (made,) = candidates(RUN, account(RUN), found, catalog=[python])
        assert (made.whole_epochs, made.switchable) == (code == "EP004", code == "HO001")
        assert made.in_steps == (2.0 if code == "HO001" else 1.0)


def test_what_cannot_give_two_percent_is_not_tried_unless_it_is_named():
    idle = fix("idle", phases=(Phase.OPTIMIZER,))
    assert offered(idle) == []
    assert offered(idle, only=frozenset({"idle"})) == ["idle"]


def test_what_could_give_little_now_is_offered_for_when_the_input_is_cured():
    step = run(input=90, forward=1, host=9)
    catalog = [fix("input"), fix("little", phases=(Phase.FORWARD,)), fix("long", phases=(Phase.FORWARD,), least=2.0)]
    catalog += [fix("half", phases=(Phase.HOST,), least=2.0)]
    found = candidates(step, account(step), (), catalog=catalog)
    assert [one.selection.fix for one in found] == ["input", "half", "little"]
    by_name = {one.selection.fix: one for one in found}
    assert (by_name["little"].ceiling, by_name["little"].least) == (pytest.approx(1 / 0.99), 1.02)
    assert (by_name["half"].ceiling, by_name["half"].least) == (pytest.approx(1 / 0.91), 2.0)


def test_a_ceiling_is_lifted_by_what_others_take_off_the_step():
    assert lifted(1 / 0.9, 1.0) == pytest.approx(1 / 0.9)
    assert lifted(1 / 0.9, 0.2) == pytest.approx(2.0)
    assert lifted(1 / 0.9, 0.05) == lifted(1 / 0.9, 0.0) == 50.0
    assert lifted(1.0, 0.1) == 1.0


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


def test_a_larger_batch_is_tried_before_what_it_decides_the_gain_of():
    catalog = [
        fix("compiled-module", Equivalence.ROUNDING, usual_s=30.0),
        fix("bf16-autocast", Equivalence.PRECISION),
        fix("fused-optimizer", Equivalence.ROUNDING),
        fix("larger-batch", Equivalence.SEMANTIC, on_request=True),
        fix("compiled-input"),
    ]
    wanted = ["compiled-input", "larger-batch", "fused-optimizer", "bf16-autocast", "compiled-module"]
    assert offered(*catalog, also=frozenset({"larger-batch"})) == wanted


def test_every_setting_that_fits_the_script_is_a_candidate_best_first():
    workers = fix("loader-workers", choices=lambda run: ({"workers": 2}, {"workers": 1}))
    assert offered(workers) == ["loader-workers workers=2", "loader-workers workers=1"]


def test_a_fix_that_does_not_fit_the_script_is_no_candidate():
    assert offered(fix("tf32", choices=lambda run: ())) == []


def test_the_ceiling_is_what_is_left_without_the_phases_and_the_findings_it_addresses_are_its_reasons():
    catalog = [fix("workers", addresses=("IN003",))]
    said = [finding(code="IN003", max_speedup=2.2), finding(code="HO001")]
    found = candidates(RUN, account(RUN), said, catalog=catalog)
    assert found[0].ceiling == pytest.approx(2.5)
    assert found[0].reasons == ("IN003",)


def test_what_a_finding_promises_may_lie_in_other_phases_too():
    catalog = [fix("gc-control", phases=(Phase.HOST,), addresses=("HO004",))]
    (found,) = candidates(RUN, account(RUN), [finding(code="HO004", max_speedup=1.9)], catalog=catalog)
    assert found.ceiling == pytest.approx(1.9)


def test_what_the_recording_says_of_a_fix_bounds_what_it_can_give():
    bounded = [fix("a", bound=lambda run: 1.5), fix("b", bound=lambda run: 1.01)]
    (found,) = candidates(RUN, account(RUN), (), catalog=bounded)
    assert (found.selection.fix, found.ceiling) == ("a", pytest.approx(1.5))
    assert offered(*bounded, only=frozenset({"b"})) == ["b"]


@pytest.mark.parametrize(("seconds", "tried"), [(0.3, True), (0.002, False), (None, True)])
def test_collecting_rarely_is_tried_where_collections_were_clocked_or_nothing_was(seconds, tried):
    clocked = CollectorFacts(collections=4, seconds=seconds or 0.0, longest_s=(seconds or 0.0) / 2)
    deep = Causes(num_steps=11, phases_s={"host": 2.7, "forward": 3.0}, collector=clocked)
    run = replace(RUN, causes=None if seconds is None else deep)
    found = candidates(run, account(run), (), catalog=[find_fix("gc-control")])
    assert bool(found) is tried


def test_collections_that_a_line_asks_for_are_not_what_collecting_rarely_saves():
    clocked = CollectorFacts(collections=4, seconds=1.0, longest_s=0.3, place=Frame("train.py", 9, "train"), called=4)
    found = replace(RUN, causes=Causes(num_steps=11, phases_s={"host": 5.7}, collector=clocked))
    assert not candidates(found, account(found), (), catalog=[find_fix("gc-control")])


def test_a_fix_that_needs_a_variable_cannot_be_switched_inside_a_process():
    found = candidates(RUN, account(RUN), (), catalog=[fix("a", switchable=True, environment={"X": "1"})])
    assert not found[0].switchable


@pytest.mark.parametrize(
    ("name", "phases", "ceiling"),
    [
        (HELD_INPUT, (Phase.INPUT,), 1.3),
        (HELD_INPUT, (Phase.INPUT, Phase.HOST), 1 / 0.3),
        (HELD_INPUT, (Phase.INPUT, Phase.TRANSFER), 2.5),
        (HELD_TRANSFER, (Phase.INPUT, Phase.TRANSFER), 1.3),
        (HELD_TRANSFER, (Phase.TRANSFER, Phase.INPUT), 1.3),
    ],
)
def test_a_measured_ceiling_bounds_what_can_shorten_nothing_else(name, phases, ceiling):
    held = replace(RUN, ceilings=(Ceiling(ceiling=name, median_ms=1.0, speedup=1.25, low=1.2, high=1.3, num_pairs=8),))
    found = candidates(held, account(held), (), catalog=[fix("a", phases=phases)])
    assert found[0].ceiling == pytest.approx(ceiling)


def test_what_cannot_give_two_percent_by_its_measured_ceiling_is_not_tried():
    held = replace(RUN, ceilings=(Ceiling(ceiling=HELD_INPUT, median_ms=1.0, speedup=1.0, low=0.99, high=1.01),))
    assert (
        candidates(held, account(held), (), catalog=[fix("a"), fix("b", phases=(Phase.HOST,))])[0].selection.fix == "b"
    )


def test_work_of_workers_is_worth_taking_off_where_they_take_the_cores_of_the_training():
    loader = LoaderFacts(is_training=True, num_workers=2)
    hidden = run(input=1, forward=99)
    moments = [(step.start_ns - hidden.header.launched_ns) / 1e9 for step in hidden.steps]
    crowd = tuple(Utilization(at_s=moment, main_cpu=0.9, worker_cpu=1.1) for moment in moments)
    machine = replace(hidden.environment, num_cpus=2, torch_threads=2, device_kind="cpu")
    hidden = replace(hidden, loaders=(loader,), utilization=crowd, environment=machine)
    catalog = [fix("input"), fix("other", phases=(Phase.HOST,))]
    (found,) = candidates(hidden, account(hidden), (), catalog=catalog)
    assert found.selection.fix == "input"
    assert found.ceiling == pytest.approx(2 / 0.9)


def test_a_fix_of_the_input_is_hoped_to_shorten_what_loaders_take_of_a_validation():
    where = Frame("train.py", 12, "Meter.update")
    lines = (line(1.0, ("train.py", 12, "Meter.update"), phase=Phase.VALIDATION),)
    causes = Causes(num_steps=10, phases_s={}, lines=lines)
    metric = replace(RUN, causes=causes)
    found = (finding(code="EP001", phase=Phase.VALIDATION, share=0.5, max_speedup=2.0, location=where),)
    catalog = [
        fix("workers", phases=(Phase.INPUT,), addresses=("EP001",)),
        fix("lean", phases=(Phase.HOST,), addresses=("EP001",)),
    ]
    hopes = []
    for run_ in (RUN, metric):
        made = candidates(run_, account(run_), found, catalog=catalog, only=frozenset({"workers", "lean"}))
        hopes.append([each.selection.fix for each in made])
    assert hopes == [["workers", "lean"], ["lean", "workers"]]
