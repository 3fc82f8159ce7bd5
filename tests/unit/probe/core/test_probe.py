"""The probes of a deep run: found by themselves, each fact given by one of them, in an order that holds."""

import dataclasses
from collections import Counter

from flatout.probe.core.probe import Probe, probes
from flatout.probe.deep import DeepProbes, DeepWatch
from flatout.schema.run import Causes

OF_THE_RUN = {  # what the deep run itself measures
    *("lines", "num_steps", "wall_s", "phases_s", "between_epochs_s", "prices", "denormals", "timeline", "device_work"),
}


def test_every_fact_of_causes_is_given_once():
    given = Counter(OF_THE_RUN)
    for probe in probes():
        given.update([*probe.causes, *probe.trials])
    assert given == Counter(field.name for field in dataclasses.fields(Causes))


def test_names_are_unique_and_each_probe_comes_behind_those_that_it_names():
    names = [probe.name for probe in probes()]
    assert len(set(names)) == len(names)
    for probe in probes():
        assert all(names.index(other) < names.index(probe.name) for other in probe.after)


def test_every_moment_that_a_probe_may_ask_for_is_told():
    """A field of `Probe` that the deep run never uses would be a probe that never acts."""
    used = " ".join(
        str(constant)
        for kind in (DeepWatch, DeepProbes)
        for code in _codes(kind)
        for constant in (*code.co_consts, *code.co_names)
    )
    moments = {field.name for field in dataclasses.fields(Probe)} - {"name", "make", "after"}
    assert {moment for moment in moments if moment not in used.split()} == set()


def _codes(kind):
    found = [value.__code__ for value in vars(kind).values() if hasattr(value, "__code__")]
    found += [value.__wrapped__.__code__ for value in vars(kind).values() if hasattr(value, "__wrapped__")]
    for code in found:
        found += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return found
