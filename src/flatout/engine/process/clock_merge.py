"""The few steps that a deep run drew as they ran: what each process wrote, put on one clock."""

import dataclasses
from collections.abc import Iterable

from flatout.schema.run import Span

__all__ = ["timeline"]

_STEPS = "steps"


def timeline(own: Iterable[Span], workers: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans that lie in the steps, in order, their times counted from the first step on.

    All processes of a machine read the same monotonic clock; what lies elsewhere on it is left out. Of a worker that
    did nothing in these steps, what it had done last stays, so that it is there.
    """
    own = list(own)
    steps = [span for span in own if span.lane == _STEPS]
    if not steps:
        return ()
    begin_ns = min(span.start_ns for span in steps)
    end_ns = max(span.start_ns + span.wall_ns for span in steps)
    lanes: dict[str, list[Span]] = {}
    before: dict[str, Span] = {}
    for span in sorted((*own, *workers), key=lambda span: span.start_ns):
        counted = dataclasses.replace(span, start_ns=span.start_ns - begin_ns)
        if span.start_ns < end_ns and span.start_ns + span.wall_ns > begin_ns:
            lanes.setdefault(span.lane, []).append(counted)
        elif span.start_ns < begin_ns and span.lane.startswith("worker "):
            before[span.lane] = counted
    lanes |= {lane: [last] for lane, last in before.items() if lane not in lanes}
    first = [_STEPS, *(span.lane for span in own)]
    order = [*dict.fromkeys(lane for lane in first if lane in lanes), *sorted(lanes.keys() - set(first), key=_number)]
    return tuple(span for lane in order for span in lanes[lane])


def _number(lane: str) -> tuple[int, str]:
    digits = lane.rpartition(" ")[2]
    return (int(digits) if digits.isdigit() else 0, lane)
