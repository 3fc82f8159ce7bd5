"""A recording as series over its steps, for programs that draw scalars: what TensorBoard and MLflow are given."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flatout.report.exports.markdown import markdown
from flatout.report.tune_summary import headline, is_tuned
from flatout.report.verdict import verdict
from flatout.schema.phase import STEP_PHASES
from flatout.schema.report import Report
from flatout.schema.run import Run

__all__ = ["Point", "Series", "all_series", "facts", "run_name", "texts"]

MAX_POINTS = 5_000
"""Points of one series; of longer recordings each is the mean of several steps in a row."""


class Point(NamedTuple):
    """One value, at a step of the training and a moment in seconds since 1970."""

    step: int
    unix_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind; the unit is part of the name."""

    name: str
    points: tuple[Point, ...]


def all_series(report: Report) -> list[Series]:
    """Return every series of a recording that has values: steps, phases, throughput, losses, utilization."""
    run = report.run
    found = [*_steps(run), *_losses(run), *_machine(run)]
    return [series for series in found if series.points]


def texts(report: Report) -> dict[str, str]:
    """Return what is said in words, as Markdown in which no name of the script can act: the verdict, the report."""
    whole = markdown(report)
    return {"verdict": whole.partition("\n")[0].lstrip("# "), "report": whole}


def facts(report: Report) -> dict[str, str]:
    """Return what the recording is of, in short texts: script, machine, versions, the findings by code."""
    run = report.run
    known = {
        "script": run.header.script,
        "device": run.environment.device,
        "cpu": run.environment.cpu,
        "cores": str(run.environment.num_cpus),
        "torch": run.environment.torch,
        "python": run.environment.python,
        "ranks": str(run.header.world_size),
        "recording": report.folder,
        "verdict": headline(report) if is_tuned(report) else verdict(report),
        **{finding.code: finding.message for finding in report.findings},
    }
    return {name: text for name, text in known.items() if text}


def run_name(report: Report) -> str:
    """Return a name for the recording that is good for a folder, too: `train.py-20260102-030405`."""
    parts = [Path(report.run.header.script or "script").name, Path(report.folder).name]
    kept = ["".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part) for part in parts]
    return "-".join(part.strip("._") for part in kept if part.strip("._"))[:120] or "recording"


def _steps(run: Run) -> Iterator[Series]:
    """Yield the time of a step, its phases, and the samples a second."""
    each = max(1, run.steps_each)
    edges = _stretches(len(run.steps))
    rows: dict[str, list[Point]] = {}
    for first, last in edges:
        steps = run.steps[first:last]
        step, unix_s, number = first * each, _unix_s(run, steps[0].start_ns), len(steps)
        wall_ns = sum(one.wall_ns for one in steps) / number
        rows.setdefault("step/ms", []).append(Point(step, unix_s, wall_ns / 1e6))
        for place, phase in enumerate(STEP_PHASES):
            spent_ns = sum(one.phases_ns[place] for one in steps) / number
            rows.setdefault(f"phase/{phase.value}_ms", []).append(Point(step, unix_s, spent_ns / 1e6))
        if run.samples_per_step is not None and wall_ns > 0:
            rate = run.samples_per_step / (wall_ns / 1e9)
            rows.setdefault("step/samples_per_s", []).append(Point(step, unix_s, rate))
    for name, points in rows.items():
        if not name.startswith("phase/") or any(point.value > 0 for point in points):
            yield Series(name, _finite(points))


def _losses(run: Run) -> Iterator[Series]:
    """Yield the losses in the order in which they were recorded: their numbers, and moments from first to last step."""
    if not run.losses or not run.steps:
        return
    start, end = (_unix_s(run, step.start_ns) for step in (run.steps[0], run.steps[-1]))
    width = (end - start) / len(run.losses)
    points = [Point(number, start + number * width, loss) for number, loss in enumerate(run.losses[:MAX_POINTS])]
    yield Series("loss", _finite(points))


def _machine(run: Run) -> Iterator[Series]:
    """Yield who used the machine, at the steps that were under way."""
    starts = [step.start_ns for step in run.steps]
    each = max(1, run.steps_each)
    moments = [
        (
            max(0, bisect_right(starts, run.header.launched_ns + round(one.at_s * 1e9)) - 1) * each,
            run.header.started_unix_s + one.at_s,
        )
        for one in run.utilization
    ]
    columns = {
        "machine/cores_training": [one.main_cpu for one in run.utilization],
        "machine/cores_workers": [one.worker_cpu for one in run.utilization],
        "machine/cores_others": [one.foreign_cpu for one in run.utilization],
        "machine/memory_gib": [one.memory_bytes / 2**30 for one in run.utilization],
    }
    if any(one.gpu_busy or one.gpu_memory_bytes for one in run.utilization):
        columns["machine/gpu_busy"] = [one.gpu_busy for one in run.utilization]
        columns["machine/gpu_memory_gib"] = [one.gpu_memory_bytes / 2**30 for one in run.utilization]
    for name, values in columns.items():
        points = [Point(step, unix_s, value) for (step, unix_s), value in zip(moments, values, strict=True)]
        yield Series(name, _finite(points[:MAX_POINTS]))


def _stretches(number: int) -> list[tuple[int, int]]:
    """Return the stretches that `number` steps are cut into."""
    width = max(1, math.ceil(number / MAX_POINTS))
    return [(first, min(first + width, number)) for first in range(0, number, width)]


def _unix_s(run: Run, at_ns: int) -> float:
    return run.header.started_unix_s + (at_ns - run.header.launched_ns) / 1e9


def _finite(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that a chart can show; a loss that is no number leaves a gap."""
    return tuple(point for point in points if math.isfinite(point.value) and math.isfinite(point.unix_s))
