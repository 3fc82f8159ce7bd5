"""The recording as a trace that Perfetto and chrome://tracing open.

The format is Chrome's "Trace Event Format": complete events ("X") with microseconds, counters ("C"), names of threads
as metadata ("M"). A recording holds the sum of each phase of a step, not its pieces: within a step the phases are drawn
one after the other in the order of the account. Of a few steps of the deep run it holds the pieces: they are drawn as
another process, whose times count from the first of these steps. Steps, and what lies outside them, are where they
were; in the record of a long whole training, several in a row are drawn as one that is as long as all of them.
"""

import json
from collections.abc import Iterator
from typing import Any

from flatout.report.rows import finite
from flatout.schema.phase import STEP_PHASES
from flatout.schema.report import Report
from flatout.schema.run import Run
from flatout.schema.secrets import masked_plain

__all__ = ["chrome_trace"]

MAX_STEPS = 20_000
"""Steps that are drawn, from the first on: more make a file of which a browser shows nothing for minutes."""

_STEPS, _PHASES, _OUTSIDE = 1, 2, 3
_NAMES = {
    _STEPS: "steps",
    _PHASES: "phases of a step (sums, in the order of the account)",
    _OUTSIDE: "outside the steps",
}


def chrome_trace(report: Report) -> str:
    """Return the trace as JSON text; times count from the launch."""
    run = report.run
    names = {"process_name": {0: run.header.script or "script"}, "thread_name": _NAMES}
    described = [
        {"ph": "M", "name": kind, "pid": run.header.rank, "tid": thread, "args": {"name": name}}
        for kind, threads in names.items()
        for thread, name in threads.items()
    ]
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "producer": "flatout",
            "steps": run.num_steps,
            "steps_drawn": min(len(run.steps), MAX_STEPS) * run.steps_each,
        },
        "traceEvents": [*described, *_steps(run), *_outside(run), *_counters(run), *_as_they_ran(run)],
    }
    return json.dumps(masked_plain(document), ensure_ascii=True, allow_nan=False) + "\n"


def _event(run: Run, thread: int, name: str, start_ns: int, wall_ns: int) -> dict[str, Any]:
    start_us = (start_ns - run.header.launched_ns) / 1e3
    return {"ph": "X", "name": name, "ts": start_us, "dur": wall_ns / 1e3, "pid": run.header.rank, "tid": thread}


def _steps(run: Run) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(run.steps[:MAX_STEPS]):
        first = number * run.steps_each
        name = f"step {first}" if run.steps_each == 1 else f"steps {first} to {first + run.steps_each - 1}"
        whole = _event(run, _STEPS, name, step.start_ns, step.wall_ns * run.steps_each)
        yield {**whole, "args": {"epoch": step.epoch}}
        at = step.start_ns
        for phase, spent in zip(STEP_PHASES, step.phases_ns, strict=True):
            if spent > 0:
                yield _event(run, _PHASES, phase.value, at, spent * run.steps_each)
                at += spent * run.steps_each


def _outside(run: Run) -> Iterator[dict[str, Any]]:
    for stretch in run.outside:
        yield _event(run, _OUTSIDE, stretch.phase.value, stretch.start_ns, stretch.wall_ns)


def _counters(run: Run) -> Iterator[dict[str, Any]]:
    for sample in run.utilization:
        common = {"ph": "C", "ts": finite(sample.at_s * 1e6), "pid": run.header.rank, "tid": 0}
        used = {"training": sample.main_cpu, "workers": sample.worker_cpu, "others": sample.foreign_cpu}
        cores = {name: finite(value) for name, value in used.items()}
        yield {**common, "name": "cores", "args": cores}
        yield {**common, "name": "memory (GiB)", "args": {"resident": sample.memory_bytes / 2**30}}
        if sample.gpu_busy or sample.gpu_memory_bytes:
            yield {**common, "name": "GPU busy", "args": {"share": finite(sample.gpu_busy)}}


def _as_they_ran(run: Run) -> Iterator[dict[str, Any]]:
    spans = run.causes.timeline if run.causes is not None else ()
    process = run.header.world_size + run.header.rank
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(span.lane for span in spans), start=_OUTSIDE + 1)}
    if lanes:
        name = {"name": "a few steps of the deep run, as they ran"}
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": name}
    for lane, number in lanes.items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": lane}}
    for span in spans:
        if span.start_ns + span.wall_ns <= 0:  # of a worker that did nothing in these steps
            continue
        begin_ns = max(0, span.start_ns)
        times = {"ts": begin_ns / 1e3, "dur": (span.start_ns + span.wall_ns - begin_ns) / 1e3}
        yield {"ph": "X", "name": span.name, **times, "pid": process, "tid": lanes[span.lane]}
