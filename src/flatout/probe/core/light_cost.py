"""What the light probes cost on this machine, measured where they run."""

import time

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.spans import OPTIMIZER

__all__ = ["cost_of_probes"]

_INTERVAL_NS = 20_000_000


def cost_of_probes(spans_per_step: float, rounds: int = 2000) -> float:
    """Return the microseconds that the light probes add to a step of so many spans, timed here and now in a loop."""
    tape = EventLog(lambda step: None, lambda stretch: None, interval_ns=_INTERVAL_NS)
    tape.tracker.num_steps = 1
    asked, begins, ends = tape.asked(1), tape.optimizer_begins(1), tape.optimizer_ends(1)
    start = time.perf_counter_ns()
    for _ in range(rounds):
        for event in (asked, tape.leave, tape.backward_begins, tape.backward_ends, begins, ends):
            tape.record((event, tape.now()))
    tape.replay()
    step_ns = (time.perf_counter_ns() - start) / rounds
    start = time.perf_counter_ns()
    for _ in range(rounds):
        tape.record((tape.enter[OPTIMIZER], tape.now()))
        tape.record((tape.leave, tape.now()))
    tape.replay()
    span_ns = (time.perf_counter_ns() - start) / rounds
    return (step_ns + spans_per_step * span_ns) / 1e3
