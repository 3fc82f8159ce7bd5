"""What such a step usually has, and a plain *leave it* where there is little to be had."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import empty, finding, healthy, ordinary, report, run

from flatout.analysis.breakdown import account
from flatout.report.html.page import page
from flatout.report.layout import Look
from flatout.report.text import text
from flatout.report.yardsticks import leave_it, yardsticks
from flatout.schema.finding import PhaseShare
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import ModelFacts, Utilization


def test_every_phase_that_is_shown_has_a_yardstick():
    told = yardsticks(ordinary().breakdown)
    assert [each.split()[0] for each in told] == ["input", "forward", "backward", "optimizer", "host"]
    assert told[0].startswith("input 62%: more than usual (up to 5.0%: ")
    assert told[1].startswith("forward 20%: usual (up to ")


@pytest.mark.parametrize("phase", STEP_PHASES)
def test_no_phase_of_a_step_is_without_one(phase):
    breakdown = replace(healthy().breakdown, phases=(PhaseShare(phase, 1.0, 1.0),))
    assert yardsticks(breakdown)[0].startswith(f"{phase.value} 100%: more than usual")


def test_where_no_step_was_seen_there_is_nothing_to_compare():
    assert yardsticks(empty().breakdown) == []
    assert leave_it(empty()) == ""


def test_a_healthy_script_is_to_be_left_as_it_is():
    told = leave_it(healthy())
    assert told.startswith("Leave it: as far as can be seen, the script is well made. The forward pass (60%) and the ")
    assert "backward pass (35%) bound each step, on cpu (2 cores) with 2 threads." in told
    assert "torch.compile" in told


def test_what_the_script_does_already_is_not_advised():
    shown = healthy()
    compiled = replace(shown, run=replace(shown.run, models=(ModelFacts(name="Net", compiled=True),)))
    assert "torch.compile" not in leave_it(compiled)


@pytest.mark.parametrize(("most", "left"), [(1.04, True), (1.06, False)])
def test_less_than_a_twentieth_to_gain_is_left(most, left):
    few = report(finding(max_speedup=most, phase=Phase.HOST, share=0.04), forward=60, backward=36, host=4)
    assert bool(leave_it(few)) is left


def test_a_step_that_waits_is_not_called_well_made():
    assert leave_it(report()) == ""


def test_a_training_that_mostly_validates_is_not_called_well_made():
    recorded = run(forward=60, backward=36, validation_s=60)
    assert leave_it(replace(healthy(), run=recorded, breakdown=account(recorded))) == ""


def test_a_busy_machine_is_said():
    shown = healthy()
    begin_s = (shown.run.steps[0].start_ns - shown.run.header.launched_ns) / 1e9
    looks = tuple(Utilization(at_s=begin_s + 0.1 * i, main_cpu=0.5, foreign_cpu=1.4) for i in range(9))
    busy = replace(shown, run=replace(shown.run, utilization=looks))
    assert "as far as a busy machine shows" in leave_it(busy)


def test_they_stand_on_the_page_and_in_the_long_text():
    shown = text(ordinary(), Look(width=100), verbose=True).plain
    assert "What such a step usually has" in shown
    assert "What such a step usually has" not in text(ordinary(), Look(width=100)).plain
    assert "what such a step usually has" in page(ordinary())
    assert "Leave it: " in text(healthy(), Look(width=200)).plain
    assert "Leave it: " in page(healthy())
