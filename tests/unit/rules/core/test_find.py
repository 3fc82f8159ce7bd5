"""Findings come in the order in which a person wants them: the cause with a line before the general statement."""

from dataclasses import replace

import pytest

from flatout.report.verdict import is_fault
from flatout.rules import Rule, catalog, examine, example, find, line
from flatout.rules.core.catalog import rule_of
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, SamplePrefix, Utilization, WorkerFacts

EIGHT_CORES = Environment(num_cpus=8)
PLACE = Frame("train.py", 3, "train")


def rule_giving(finding):
    return replace(rule_of(finding.code), check=lambda *_: finding)


def finding(code, *, share=0.5, most=2.0, location=None):
    return Finding(
        code=code, name="x", phase=Phase.INPUT, share=share, max_speedup=most, message="n=1", location=location
    )


def order(*findings):
    truth = example()
    found = examine(truth.run, truth.breakdown, (), [rule_giving(f) for f in findings]).findings
    assert [f.max_speedup for f in found if f.code[:2] != "MS"] == sorted(
        (f.max_speedup for f in found if f.code[:2] != "MS"), reverse=True
    )
    return [f.code for f in found]


def test_the_largest_gain_comes_first():
    assert order(finding("HO001", most=1.2), finding("CO001", most=3.0), finding("EP001", most=1.5)) == [
        "CO001",
        "EP001",
        "HO001",
    ]


def test_of_equal_gains_the_one_with_a_place_comes_first():
    assert order(finding("CO001"), finding("CO004", location=PLACE)) == ["CO004", "CO001"]


def test_doubts_about_the_measurement_come_last():
    assert order(finding("MS001", most=9.0), finding("HO001", most=1.1)) == ["HO001", "MS001"]


def test_the_general_statement_goes_when_a_cause_explains_most_of_it():
    assert order(finding("IN001", share=0.6, most=2.5, location=PLACE), finding("IN003", share=0.5, most=2.0)) == [
        "IN003"
    ]


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("IN012", "IN003"),
        ("IN015", "IN003"),
        ("IN018", "IN003"),
        ("HO004", "HO001"),
        ("CO005", "CO004"),
        ("TR005", "HO001"),
        ("TR005", "SY001"),
        ("SY002", "SY001"),
    ],
)
def test_what_a_line_does_says_more_than_that_it_takes_long(more, less):
    named = Frame(PLACE.file, PLACE.line, f"Net.{PLACE.function}")
    said = (finding(less, share=0.5, most=2.0, location=PLACE), finding(more, share=0.5, most=2.0, location=named))
    assert order(*said) == [more]


def test_a_line_that_waits_is_not_also_called_slow():
    slow, waits = (
        finding("IN003", share=0.5, most=2.0, location=PLACE),
        finding("IN012", share=0.5, most=2.0, location=PLACE),
    )
    assert order(slow, waits) == ["IN012"]
    elsewhere = finding("IN012", share=0.5, most=2.0, location=Frame("other.py", 3, "read"))
    assert set(order(slow, elsewhere)) == {"IN003", "IN012"}


def test_the_general_statement_leads_when_causes_explain_only_a_little():
    assert order(finding("IN001", share=0.6, most=2.5), finding("IN005", share=0.1, most=1.1)) == ["IN001", "IN005"]


def test_the_general_statement_leads_when_it_is_alone_among_input_findings():
    assert order(finding("IN001", share=0.3, most=1.4), finding("CO004", share=0.3, most=1.3)) == ["IN001", "CO004"]


def test_a_rule_that_raises_costs_only_its_own_finding():
    def broken(run, breakdown, headroom):
        raise ZeroDivisionError("no steps")

    bad = Rule(code="IN999", name="broken", check=broken, fires_on=(), quiet_on=())
    truth = example()
    result = examine(truth.run, truth.breakdown, (), [bad, rule_giving(finding("HO001"))])
    assert [f.code for f in result.findings] == ["HO001"]
    assert result.notes == ("rule IN999 broken could not be applied: ZeroDivisionError: no steps",)


def test_few_steps_support_only_what_a_few_can_show():
    rules = [rule_giving(finding(code)) for code in ("HO001", "EP001", "EP002", "IN013", "ME001", "MS002")]
    few, enough = example(n=4), example(n=5)
    assert {f.code for f in examine(few.run, few.breakdown, (), rules).findings} == {"EP002", "IN013", "ME001", "MS002"}
    assert len(examine(enough.run, enough.breakdown, (), rules).findings) == 6


def test_a_wait_of_samples_is_named_once_and_with_its_line():
    loader = replace(LOADER, sample_cpu_s=0.004, prefix=None)
    truth = example(step_ms=100, input=60, forward=35, loaders=(loader,), lines=LINES, environment=EIGHT_CORES)
    found = find(truth.run, truth.breakdown)
    assert {f.code for f in found} == {"IN012"}
    assert found[0].location == Frame(*DECODE)


def test_workers_that_harm_are_not_also_told_to_use_fewer_threads_or_to_fetch_more():
    loader = replace(LOADER, num_workers=2, sample_s=0.02, sample_cpu_s=0.002)
    workers = tuple(WorkerFacts(torch_threads=8, fetches=20, busy_s=2.0, cpu_s=2.0, alive_s=5.0) for _ in range(2))
    truth = example(step_ms=100, input=60, forward=35, loaders=(loader,), workers=workers, environment=EIGHT_CORES)
    codes = {f.code for f in find(truth.run, truth.breakdown)}
    assert "IN010" in codes
    assert not codes & {"IN002", "IN011", "IN012"}


def test_no_rule_raises_on_the_examples_of_the_others():
    for rule in catalog():
        for truth in (*rule.fires_on, *rule.quiet_on):
            assert examine(truth.run, truth.breakdown, truth.headroom).notes == ()


DECODE = ("data.py", 34, "Pictures.__getitem__")
LOADER = LoaderFacts(
    is_training=True,
    batch_size=64,
    num_samples=5000,
    sample_s=0.055,
    sample_cpu_s=0.054,
    collate_s=0.003,
    batch_bytes=800_000,
    fetches=40,
    epochs_started=1,
    iterated_at=Frame("train.py", 40, "train"),
    created_at=Frame("train.py", 20, "main"),
    prefix=SamplePrefix(checked=8, prefix_share=0.2, seconds=0.0008, sample_bytes=12_000),
)
LINES = (
    line(2.6, DECODE, stage="sample", leaf="PIL", leaf_function="decode"),
    line(0.2, ("train.py", 40, "train"), stage="collate", leaf="torch"),
)


def test_a_slow_line_of_a_loader_without_workers_is_named_first_on_a_busy_machine_of_two_cores():
    busy = tuple(Utilization(at_s=0.5 * i, main_cpu=1.6) for i in range(12))
    truth = example(
        step_ms=100, input=60, forward=15, backward=20, loaders=(LOADER,), lines=LINES,
        environment=Environment(num_cpus=2, memory_bytes=8 << 30), utilization=busy,
    )  # fmt: skip
    found = find(truth.run, truth.breakdown)
    assert [f.code for f in found] == ["IN003", "IN002"]
    assert found[0].location == Frame(*DECODE)


def test_what_repeats_every_epoch_comes_before_the_line_that_computes_it():
    loader = replace(LOADER, prefix=replace(LOADER.prefix, deterministic=True))
    lines = (LINES[0], line(1.0, ("data.py", 50, "Flip.__call__"), stage="sample"))
    truth = example(
        step_ms=100, input=60, forward=35, loaders=(loader,), lines=lines, environment=Environment(memory_bytes=8 << 30)
    )
    assert [f.code for f in find(truth.run, truth.breakdown)][:2] == ["IN007", "IN003"]


@pytest.mark.parametrize(
    "phases",
    [
        {"forward": 40, "backward": 50},
        {"input": 9, "forward": 40, "backward": 45, "optimizer": 5},
        {"input": 5, "transfer": 4, "forward": 30, "backward": 50, "optimizer": 9, "sync": 1},
    ],
)
def test_a_healthy_script_gets_no_finding(phases):
    truth = example(
        step_ms=100, **phases, loaders=(replace(LOADER, num_workers=2),),
        outside_s={Phase.EPOCH_GAP: 0.2, Phase.VALIDATION: 0.9, Phase.CHECKPOINT: 0.1},
        lines=[line(3.0, ("train.py", 44, "train"), phase=Phase.FORWARD, leaf="torch")],
    )  # fmt: skip
    assert find(truth.run, truth.breakdown) == ()


# -- ceilings -----------------------------------------------------------------------------------------------------


def held(speedup, *, name=HELD_INPUT, width=0.03):
    return Ceiling(ceiling=name, median_ms=5.0, speedup=speedup, low=speedup - width, high=speedup + width, num_pairs=8)


def bounded(ceiling, *findings):
    truth = example()
    found = examine(truth.run, truth.breakdown, (ceiling,), [rule_giving(f) for f in findings]).findings
    return [(f.code, f.max_speedup) for f in found if f.code != "MS002"]


def test_no_more_is_promised_than_holding_the_batch_gave():
    promised = finding("IN003", most=3.0), finding("IN002", most=1.5)
    assert bounded(held(1.8), *promised) == [("IN003", 1.8), ("IN002", 1.5)]


def test_what_one_ceiling_bounds_stays_in_the_order_of_its_promises():
    promised = finding("IN002", most=2.0, share=0.9), finding("IN007", most=3.0), finding("IN003", most=2.5)
    assert [code for code, _ in bounded(held(1.5), *promised)] == ["IN007", "IN003", "IN002"]


def test_bounded_findings_make_way_for_others():
    other = replace(finding("HO001", most=1.6), phase=Phase.HOST)
    assert [code for code, _ in bounded(held(1.5), finding("IN003", most=3.0), other)] == ["HO001", "IN003"]


def test_where_holding_the_batch_gives_nothing_nothing_is_found_wrong_with_the_input():
    host = replace(finding("HO001", most=1.6), phase=Phase.HOST)
    assert bounded(held(0.98, width=0.01), finding("IN002", most=3.0), host) == [("HO001", 1.6)]


def test_a_ceiling_bounds_its_own_phase_only_and_no_doubts():
    doubt = finding("MS001", most=2.0)
    assert bounded(held(1.1, name=HELD_TRANSFER), finding("IN003", most=3.0)) == [("IN003", 3.0)]
    assert bounded(held(1.0, width=0.0), doubt) == [("MS001", 2.0)]


@pytest.mark.parametrize("cause", ["IN003", "IN004", "IN005", "IN007"])
@pytest.mark.parametrize(("most", "first"), [(1.9, True), (1.5, False)])
def test_what_makes_the_work_comes_before_workers_that_hide_it_unless_they_give_clearly_more(cause, most, first):
    found = order(finding("IN002", most=2.0), finding(cause, most=most, location=PLACE))
    assert found == ([cause, "IN002"] if first else ["IN002", cause])


@pytest.mark.parametrize("cause", ["IN012", "IN017", "IN018"])
def test_at_one_line_waiting_comes_before_keeping_what_is_waited_for(cause):
    kept = finding("IN007", most=3.6, location=PLACE)
    elsewhere = replace(PLACE, line=PLACE.line + 20)
    assert order(kept, finding(cause, most=3.2, location=PLACE)) == [cause, "IN007"]
    assert order(kept, finding(cause, most=3.2, location=elsewhere)) == ["IN007", cause]
    assert order(kept, finding(cause, most=2.0, location=PLACE)) == ["IN007", cause]


@pytest.mark.parametrize(("most", "first"), [(1.9, True), (1.5, False)])
def test_bytes_that_are_not_needed_come_before_waiting_unless_that_gives_clearly_more(most, first):
    found = order(finding("IN012", most=2.0), finding("IN018", most=most))
    assert found == (["IN018", "IN012"] if first else ["IN012", "IN018"])


def test_what_comes_behind_its_cause_comes_behind_all_that_gives_more():
    found = order(
        finding("IN002", most=3.65), finding("IN007", most=3.6, location=PLACE), finding("SY001", most=3.4),
        finding("IN012", most=3.2, location=PLACE),
    )  # fmt: skip
    assert found == ["SY001", "IN012", "IN007", "IN002"]


@pytest.mark.parametrize(("foreign", "doubted"), [(1.5, True), (0.1, False)])
def test_on_a_busy_machine_findings_stay_and_say_their_doubt(foreign, doubted):
    looks = tuple(Utilization(at_s=0.5 * i, main_cpu=0.5, foreign_cpu=foreign) for i in range(12))
    truth = example(step_ms=100, n=60, forward=50, utilization=looks)
    rules = [rule_giving(finding("HO001", location=PLACE)), rule_of("MS001")]
    found = examine(truth.run, truth.breakdown, (), rules).findings
    assert [each.code for each in found] == (["HO001", "MS001"] if doubted else ["HO001"])
    assert ("the place stands, the figures are rough" in found[0].message) is doubted
    assert "the place stands" not in found[-1].message or not doubted


def test_what_is_no_fault_stands_behind_faults_and_before_doubts():
    def of(code, speedup, optional=False):
        found = Finding(
            code=code, name=code, phase=Phase.FORWARD, share=0.3, max_speedup=speedup, message="", optional=optional
        )
        return Rule(code=code, name=code, check=lambda *_: found, fires_on=(), quiet_on=())

    rules = (of("CO028", 3.0, optional=True), of("MS001", 1.0), of("CO004", 1.2))
    shown = example(step_ms=50, forward=40)
    found = examine(shown.run, shown.breakdown, (), rules).findings
    assert [each.code for each in found] == ["CO004", "CO028", "MS001"]
    only = examine(shown.run, shown.breakdown, (), rules[:2]).findings
    assert not any(map(is_fault, only))
