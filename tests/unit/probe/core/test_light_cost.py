"""The cost of the light probes, as timed in a loop."""

from itertools import count

from flatout.probe.core import light_cost
from flatout.probe.core.light_cost import cost_of_probes


def test_a_step_costs_something_and_its_spans_more(monkeypatch):
    assert cost_of_probes(0, rounds=50) > 0
    ticks = count(0, 1_000_000)  # a millisecond between two looks, of which each loop takes two
    monkeypatch.setattr(light_cost.time, "perf_counter_ns", lambda: next(ticks))
    assert cost_of_probes(0, rounds=100) == 10.0  # microseconds
    assert cost_of_probes(6, rounds=100) == 70.0
