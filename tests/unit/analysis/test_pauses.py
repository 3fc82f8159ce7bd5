"""After how many steps a deep run has seen the first pause that matters."""

from dataclasses import replace

import pytest

from flatout.analysis.pauses import steps_to_a_pause
from flatout.rules.core.example import example
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Outside


def recorded(*pauses, step_ms=100.0, n=80, **facts):
    """Return a run of `n` steps, with a pause (phase, after how many steps, seconds) here and there."""
    run = replace(example(step_ms=step_ms, n=n, forward=40, backward=50).run, **facts)
    stretches = [
        Outside(phase=phase, start_ns=run.steps[after].start_ns, wall_ns=round(seconds * 1e9))
        for phase, after, seconds in pauses
    ]
    return replace(run, outside=(*run.outside, *stretches))


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        ([(Phase.VALIDATION, 50, 3.0)], 52),
        ([(Phase.VALIDATION, 20, 2.0), (Phase.VALIDATION, 50, 2.0)], 22),
        ([(Phase.EPOCH_GAP, 20, 2.0), (Phase.VALIDATION, 30, 3.0)], 32),
        ([(Phase.VALIDATION, 50, 0.2)], 0),  # next to nothing
        ([(Phase.OTHER, 50, 3.0)], 0),
        ([], 0),
    ],
)
def test_it_goes_past_the_first_of_each_kind(pauses, expected):
    assert steps_to_a_pause(recorded(*pauses)) == expected


def test_a_pause_that_comes_late_is_not_waited_for():
    assert steps_to_a_pause(recorded((Phase.VALIDATION, 60, 30.0), step_ms=300.0)) == 0


def test_a_pass_over_a_loader_is_ended_early_instead():
    loader = LoaderFacts(is_training=True)
    assert steps_to_a_pause(recorded((Phase.VALIDATION, 50, 3.0), loaders=(loader,))) == 0
