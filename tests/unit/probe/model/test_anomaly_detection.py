"""What anomaly detection costs: steps with it and without it in turn, where the script has switched it on."""

import pytest
import torch

from flatout.probe.core.seams import Seams
from flatout.probe.core.spans import BACKWARD, FORWARD
from flatout.probe.model.anomaly_detection import AnomalyTrial
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Step


@pytest.fixture
def trial():
    made, seams = AnomalyTrial(), Seams()
    made.install(seams)
    yield made
    seams.undo()
    torch.set_anomaly_enabled(False)


def step(forward, backward, host=0):
    phases = [0] * len(STEP_PHASES)
    phases[FORWARD], phases[BACKWARD] = forward, backward
    phases[STEP_PHASES.index(Phase.HOST)] = host
    return Step(start_ns=0, wall_ns=sum(phases), phases_ns=tuple(phases))


def run(trial, number=20, *, with_host=False):
    """Make steps that take 20 with anomaly detection and 15 without."""
    modes = []
    for _ in range(number):
        trial.apply()
        modes.append(torch.is_anomaly_enabled())
        trial.step(step(10, 10 if modes[-1] else 5), with_host=with_host)
    return modes


def test_a_script_without_it_is_left_alone(trial):
    assert run(trial) == [False] * 20
    assert not trial.priced
    assert trial.facts() == (0.0, 0, None)


def test_blocks_of_five_steps_take_turns(trial):
    torch.autograd.set_detect_anomaly(True)
    assert run(trial) == ([True] * 5 + [False] * 5) * 2
    share, steps, place = trial.facts()
    assert trial.priced
    assert share == pytest.approx(0.25)
    assert steps == 6  # the first two of each block are of neither arm
    assert (place.file, place.function) == (__file__, "test_blocks_of_five_steps_take_turns")
    trial.end()
    assert torch.is_anomaly_enabled()


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_a_script_that_switches_it_on_in_each_step_is_followed(trial):
    modes = []
    for _ in range(20):
        with torch.autograd.detect_anomaly(check_nan=False):
            modes.append(torch.is_anomaly_enabled())
            assert not torch.is_anomaly_check_nan_enabled()  # as the script wants it
            trial.step(step(10, 10), with_host=False)
    assert modes == ([True] * 5 + [False] * 5) * 2


def test_too_few_steps_tell_nothing(trial):
    torch.autograd.set_detect_anomaly(True)
    run(trial, 9)
    assert trial.facts() == (0.0, 0, None)


def test_what_is_slower_without_it_costs_nothing(trial):
    torch.autograd.set_detect_anomaly(True)
    for _ in range(20):
        trial.apply()
        trial.step(step(10, 5 if torch.is_anomaly_enabled() else 10), with_host=False)
    assert trial.facts()[0] == 0.0


def test_without_modules_the_forward_pass_is_host_time(trial):
    torch.autograd.set_detect_anomaly(True)
    for _ in range(20):
        trial.apply()
        trial.step(step(0, 5, host=15 if torch.is_anomaly_enabled() else 5), with_host=True)
    assert trial.facts()[0] == pytest.approx(0.5)
