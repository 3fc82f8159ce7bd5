"""A cost that grows within a long epoch is told by what it comes to at the epoch's end."""

from dataclasses import replace

import pytest

from flatout.rules import Example, example
from flatout.rules.ho003_growing_cost import RULE
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import LoaderFacts


def grown(*, batches, n=120, each_ms=0.02, epoch_lengths=()):
    """Return a recording of `n` steps of an epoch of `batches`, whose host time grows by `each_ms` a step."""
    run = example(step_ms=20, n=n, forward=10, backward=9, host=1).run
    host = STEP_PHASES.index(Phase.HOST)
    steps = []
    for number, step in enumerate(run.steps):
        more = round(number * each_ms * 1e6)
        phases = tuple(ns + more * (at == host) for at, ns in enumerate(step.phases_ns))
        steps.append(step._replace(phases_ns=phases, wall_ns=step.wall_ns + more))
    loader = LoaderFacts(is_training=True, num_batches=batches, epochs_started=1)
    return Example(lambda: replace(run, steps=tuple(steps), loaders=(loader,), epoch_lengths=epoch_lengths))


def found(made):
    return RULE.check(made.run, made.breakdown, made.headroom)


def test_growth_goes_on_to_the_end_of_the_epoch():
    seen, whole = found(grown(batches=120)), found(grown(batches=1200))
    assert seen.share == pytest.approx(1.2 / 21.2, rel=0.15)  # 120 steps of 0.02 ms more each, on the mean
    assert whole.share == pytest.approx(12 / 32, rel=0.15)
    assert "over the whole epoch of 1,200 steps if it goes on" in whole.message
    assert "over the whole epoch" not in seen.message


def test_little_growth_in_a_recording_may_be_much_in_the_epoch():
    assert found(grown(batches=120, each_ms=0.01)) is None
    assert found(grown(batches=2400, each_ms=0.01)).share > 0.3
