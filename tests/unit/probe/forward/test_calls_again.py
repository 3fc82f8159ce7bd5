"""Which functions one step calls again for what it has.

Covers flatout.probe.forward.calls_again, flatout.probe.forward.call_contents and flatout.schema.calls.
"""

from threading import get_ident
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.forward.unchanging_calls import CallWatch


def repeated(step, steps=13):
    """Return what was found in a training whose steps are `step(batch)`."""
    log = SimpleNamespace(
        tracing=SimpleNamespace(possible=False),
        thread=get_ident(),
        fetching=False,
        tracker=SimpleNamespace(trouble=raise_it),
    )
    watch = CallWatch(log)
    for number in range(steps):
        step(torch.rand(30, 3, generator=torch.Generator().manual_seed(number)))
        watch.step(SimpleNamespace(wall_ns=1))
    watch.stop()
    return {each.function: each for each in watch.repeated()}


def gaps(times):
    return (times[:, None] - times[None]).abs().amax(-1)


def order(times, reverse=False):
    rows = np.argsort(times[:, 0].numpy())
    return rows[::-1].copy() if reverse else rows


def heads_that_ask_for_gaps(times):
    total = sum(gaps(times).sum() for _ in range(4))
    return total + gaps(times).mean()


def views_of_one_batch(times):
    return [gaps(times[:, :2]) for _ in range(3)]


def other_arguments(times):
    return order(times), order(times, reverse=True), order(times)


def test_calls_for_what_a_step_has_are_counted_with_the_lines_that_make_them():
    found = repeated(heads_that_ask_for_gaps)["gaps"]
    assert (found.calls, found.again, found.numbers) == (5, 4, 900)
    first = heads_that_ask_for_gaps.__code__.co_firstlineno
    assert {place.line - first for place in found.places} == {1, 2}
    assert found.file == __file__


def test_views_made_anew_are_the_same_memory():
    assert repeated(views_of_one_batch)["gaps"].again == 2


def test_arguments_count():
    found = repeated(other_arguments)["order"]
    assert (found.calls, found.again) == (3, 1)


def written_in_between(times):
    gaps(times)
    times.mul_(2)
    gaps(times)


def of_different_halves(times):
    gaps(times[:15])
    gaps(times[15:])


def of_what_learns(times):
    times = times.clone().requires_grad_()
    gaps(times)
    gaps(times)


def noise(times):
    return torch.rand(len(times), 3)


def drawn(times):
    noise(times)
    noise(times)


def first_two(times):
    return times[0, 0].item(), times[1, 0].item()


def few_numbers(times):
    first_two(times)
    first_two(times)


@pytest.mark.parametrize("step", [written_in_between, of_different_halves, of_what_learns, drawn, few_numbers])
def test_what_is_another_thing_each_time_is_not(step):
    found = repeated(step)
    assert not [each for each in found.values() if each.function in ("gaps", "noise", "first_two")]
