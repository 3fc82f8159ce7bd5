"""A few steps as they ran: the training thread, what it read, and every worker, on one clock."""

from collections import defaultdict
from typing import Any

from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import DeviceWork, Run, Span
from flatout.units import format_ms, format_share

__all__ = ["timeline"]

MOST_WORKERS = 16
"""Workers that are drawn, by number; more rows than a screen has show nothing that these do not."""

_STEPS = "steps"
_KINDS = {phase.value: phase.value for phase in STEP_PHASES} | {
    "sample": "transfer",
    "collate": "checkpoint",
    "kernel": "computing",
    "copy to the device": "transfer",
    "copy to the host": "sync",
}


def timeline(run: Run) -> dict[str, Any] | None:
    """Return the rows and how long they are, as plain values for the template; None where nothing was drawn."""
    spans = run.causes.timeline if run.causes is not None else ()
    end_ns = max((span.start_ns + span.wall_ns for span in spans if span.lane == _STEPS), default=0)
    if end_ns <= 0:
        return None
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        row = lanes[span.lane]  # a worker may have done nothing in these steps
        if span.start_ns < end_ns and span.start_ns + span.wall_ns > 0:
            row.append(span)
    workers = [lane for lane in lanes if lane.startswith("worker ")]
    left_out = workers[MOST_WORKERS:]
    names = dict.fromkeys(span.name for lane in lanes if lane != _STEPS for span in lanes[lane])
    return {
        "rows": [_row(lane, found, end_ns) for lane, found in lanes.items() if lane not in left_out],
        "steps": len(lanes[_STEPS]),
        "ms": format_ms(end_ns / 1e6),
        "key": [(_KINDS.get(name, "other"), name.replace("_", " ")) for name in names],
        "left_out": len(left_out),
        "device": _device(run.causes.device_work if run.causes is not None else None),
    }


def _device(work: DeviceWork | None) -> dict[str, Any] | None:
    """Return in words how busy the device was in these steps, and with which kernels."""
    if work is None or work.num_steps <= 0 or work.wall_s <= 0:
        return {"reason": work.reason} if work is not None and work.reason else None
    return {
        "reason": "",
        "busy": format_share(work.busy_s / work.wall_s),
        "kernels": f"{work.num_kernels / work.num_steps:,.0f}",
        "longest": [
            (kernel.name, f"{kernel.count / work.num_steps:.3g}", format_ms(kernel.seconds / work.num_steps * 1e3))
            for kernel in work.longest
        ],
    }


def _row(lane: str, spans: list[Span], end_ns: int) -> dict[str, Any]:
    """Return one row: its spans as shares of the whole, and its sums in words."""
    sums: dict[str, int] = defaultdict(int)
    parts = []
    for number, span in enumerate(spans):
        begin = max(0, span.start_ns)
        wall = min(end_ns, span.start_ns + span.wall_ns) - begin
        sums[span.name] += wall
        kind = f"step{number % 2}" if lane == _STEPS else _KINDS.get(span.name, "other")
        name = span.name.replace("_", " ")
        shown = name if lane == _STEPS else ""
        left, width = (f"{100 * part / end_ns:.3f}%" for part in (begin, wall))
        parts.append((kind, left, width, shown, f"{name} {format_ms(span.wall_ns / 1e6)}"))
    most = sorted(sums, key=lambda name: -sums[name])
    told = ", ".join(f"{name.replace('_', ' ')} {format_ms(sums[name] / 1e6)}" for name in most)
    return {"name": lane, "parts": parts, "told": f"{lane}: {told or 'nothing'}"}
