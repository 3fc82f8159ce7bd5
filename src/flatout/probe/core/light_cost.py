"""What the light probes cost on this machine, measured where they run."""

import time

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.spans import OPTIMIZER

__all__ = ["cost_of_probes"]

_INTERVAL_NS = 20_000_000


def cost_of_probes(spans_per_step: float, rounds: int = 2000) -> float:
    """Return the microseconds that the light probes add to a step of so many spans, timed here and now in a loop."""
    event_log = EventLog(lambda step: None, lambda stretch: None, interval_ns=_INTERVAL_NS)
    event_log.tracker.num_steps = 1
    events = event_log.events
    asked, begins, ends = events.asked(1), events.optimizer_begins(1), events.optimizer_ends(1)
    start = time.perf_counter_ns()
    for _ in range(rounds):
        for event in (asked, events.leave, events.backward_begins, events.backward_ends, begins, ends):
            event_log.record((event, event_log.now()))
    event_log.replay()
    step_ns = (time.perf_counter_ns() - start) / rounds
    start = time.perf_counter_ns()
    for _ in range(rounds):
        event_log.record((events.enter[OPTIMIZER], event_log.now()))
        event_log.record((events.leave, event_log.now()))
    event_log.replay()
    span_ns = (time.perf_counter_ns() - start) / rounds
    return (step_ns + spans_per_step * span_ns) / 1e3
