"""What the measured ceilings leave a finding to give: those of its own stage, where that is known."""

from dataclasses import replace

import pytest

from flatout.rules import example, line
from flatout.rules.core.catalog import rule_of
from flatout.rules.core.example import steps_of
from flatout.rules.core.stage_bounds import bounded
from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, SamplePrefix, Utilization

PLACE = ("data.py", 34, "Resize.__call__")


def held(name, speedup, width=0.02):
    low, high = speedup * (1 - width), speedup * (1 + width)
    return Ceiling(ceiling=name, median_ms=5.0, speedup=speedup, low=low, high=high, num_pairs=8)


# a step of 100 ms: reading 20, fixed transforms 10, random ones 30, collate 15, the rest 25
CEILINGS = (
    held(HELD_RAW, 100 / 80),
    held(HELD_FIXED, 100 / 70),
    held(HELD_SAMPLES, 100 / 40),
    held(HELD_INPUT, 100 / 25),
)


def most(code, promised=9.0, *, location=None, ceilings=CEILINGS, phase=Phase.INPUT, **known):
    finding = Finding(
        code=code, name="x", phase=phase, share=0.5, max_speedup=promised, message="n=1", location=location
    )
    found = bounded(finding, rule_of(code), example(step_ms=100, input=75, forward=25, **known).run, ceilings)
    return found.max_speedup if found is not None else None


@pytest.mark.parametrize(
    ("code", "speedup"),
    [
        ("IN001", 100 / 25),
        ("IN002", 100 / 25),
        ("IN004", 100 / 85),
        ("IN005", 100 / 85),
        ("IN007", 100 / 70),
        ("IN012", 100 / 40),
        ("IN014", 100 / 60),
        ("IN015", 100 / 80),
    ],
)
def test_each_rule_is_held_to_its_own_stage(code, speedup):
    assert most(code) == pytest.approx(speedup)


def test_samples_that_are_the_same_each_time_can_be_kept_whole():
    loader = LoaderFacts(is_training=True, prefix=SamplePrefix(deterministic=True))
    assert most("IN007", loaders=(loader,)) == pytest.approx(100 / 40)


@pytest.mark.parametrize(
    ("stages", "speedup"),
    [({"sample": 3.0}, 100 / 40), ({"collate": 3.0}, 100 / 85), ({"sample": 2.0, "collate": 1.0}, 100 / 25)],
)
def test_a_line_is_held_to_the_stage_that_it_was_seen_in(stages, speedup):
    lines = [line(seconds, PLACE, stage=stage) for stage, seconds in stages.items()]
    assert most("IN003", location=Frame(*PLACE), lines=lines) == pytest.approx(speedup)


def test_what_is_all_of_a_stage_takes_its_promise_from_there_and_a_part_of_it_does_not():
    assert most("IN004", 1.05) == pytest.approx(100 / 85)
    assert most("IN014", 1.05) == 1.05
    rough = (*CEILINGS[:2], held(HELD_SAMPLES, 100 / 40, width=0.5), CEILINGS[3])
    assert most("IN004", 1.05, ceilings=rough) == 1.05


def test_where_a_stage_was_not_measured_the_whole_input_bounds():
    assert most("IN004", ceilings=CEILINGS[3:]) == pytest.approx(4.0)
    assert most("IN015", ceilings=CEILINGS[3:]) == pytest.approx(4.0)
    assert most("IN004", ceilings=()) == 9.0


def test_a_stage_that_takes_nothing_has_no_finding():
    nothing = (held(HELD_SAMPLES, 3.99, width=0.002), held(HELD_INPUT, 4.0, width=0.002))
    assert most("IN004", ceilings=nothing) is None
    assert most("IN012", ceilings=nothing) == pytest.approx(3.99)


def test_beside_a_device_only_what_was_held_from_the_start_bounds():
    device = Environment(device_kind="cuda")
    assert most("IN004", environment=device) == pytest.approx(4.0)
    assert most("IN015", environment=device) == pytest.approx(100 / 80)


def test_with_workers_only_what_was_held_from_the_start_bounds():
    loaders = (LoaderFacts(is_training=True, num_workers=1),)
    assert most("IN004", loaders=loaders) == pytest.approx(4.0)
    assert most("IN014", loaders=loaders) == pytest.approx(100 / 40)
    assert most("IN012", loaders=loaders) == pytest.approx(100 / 40)
    lines = (line(3.0, PLACE, stage="sample", process="worker"), line(9.0, PLACE, stage="collate"))
    assert most("IN003", loaders=loaders, lines=lines, location=Frame(*PLACE)) == pytest.approx(100 / 40)


def test_other_phases_have_their_own_ceilings_or_none():
    copies = (*CEILINGS, held(HELD_TRANSFER, 5.0))
    assert most("TR001", ceilings=copies, phase=Phase.TRANSFER) == pytest.approx(5.0)
    assert most("HO001", phase=Phase.HOST) == 9.0
    assert most("MS001", ceilings=(held(HELD_INPUT, 1.0, width=0.001),)) == 9.0


def test_a_ceiling_of_an_older_report_without_its_interval_bounds_as_well():
    old = (replace(held(HELD_INPUT, 2.0), low=0.0, high=0.0, num_pairs=0),)
    assert most("IN002", ceilings=old) == 2.0


def seldom_dear(every, extra_ms, steps=80):
    """Steps of 10 ms, 6 of them input, and in one of so many `extra_ms` more of input."""
    dear = [extra_ms if number % every == 0 else 0.0 for number in range(steps)]
    return example(steps=steps_of([{Phase.INPUT: 6.0 + extra, Phase.FORWARD: 4.0} for extra in dear]))


@pytest.mark.parametrize(
    ("extra_ms", "measured_ms", "speedup"),
    [
        (0.0, 10.0, 2.5),
        (100.0, 10.0, 3.75),  # 15 ms a step in all, of which stretches without a dear step know 10
        (100.0, 15.0, 2.5),  # the stretches have seen them, too
        (5.0, 10.0, 2.5),  # hardly anything
    ],
)
def test_what_short_stretches_did_not_see_of_the_input_goes_with_it(extra_ms, measured_ms, speedup):
    seen = seldom_dear(20, extra_ms)
    held_input = Ceiling(ceiling=HELD_INPUT, median_ms=measured_ms / 2.5, speedup=2.5, low=2.45, high=2.55, num_pairs=8)
    finding = Finding(code="IN001", name="x", phase=Phase.INPUT, share=0.5, max_speedup=9.0, message="n=1")
    found = bounded(finding, rule_of("IN001"), seen.run, (held_input,), seen.breakdown)
    assert found.max_speedup == pytest.approx(speedup, rel=0.01)
    assert bounded(finding, rule_of("IN001"), seen.run, (held_input,)).max_speedup == pytest.approx(2.5)


@pytest.mark.parametrize(("foreign", "bound"), [(1.5, 3.0), (0.1, 1.3)])
def test_beside_other_programs_what_is_not_known_well_limits_by_its_upper_end(foreign, bound):
    looks = tuple(Utilization(at_s=0.5 * i, main_cpu=0.5, foreign_cpu=foreign) for i in range(12))
    unsure = Ceiling(ceiling=HELD_INPUT, median_ms=77.0, speedup=1.3, low=0.9, high=3.0, num_pairs=8)
    finding = Finding(code="IN001", name="x", phase=Phase.INPUT, share=0.8, max_speedup=5.0, message="n=1")
    found = bounded(finding, rule_of("IN001"), example(step_ms=100, input=80, utilization=looks).run, (unsure,))
    assert found.max_speedup == pytest.approx(bound)
