"""What the charts of the page draw: series over steps and over time, cut down to what a screen can show."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from flatout.analysis.statistics import median
from flatout.report.html.results import losses_chart
from flatout.schema.report import Report
from flatout.schema.run import Run, Utilization

__all__ = ["charts"]

MAX_POINTS = 600
"""Points of one series; more cannot be told apart on a screen, and 100,000 of them would make a page of megabytes."""


def charts(report: Report) -> list[dict[str, Any]]:
    """Return one entry for each chart there are figures for: its place on the page, words, and columns of numbers."""
    run = report.run
    found = [losses_chart(report), _steps(run), _losses(run), _cores(run), _gpu(run), _memory(run)]
    return [chart for chart in found if chart is not None]


def _steps(run: Run) -> dict[str, Any] | None:
    """Return the time of every step, warm-up included: the middle and the longest of each stretch."""
    walls = [step.wall_ns / 1e6 for step in run.steps]
    if len(walls) < 2:
        return None
    edges = _edges(len(walls))
    stretches = [walls[first:last] for first, last in edges]
    single = len(stretches) == len(walls)
    series = [{"label": "step" if single else "median", "values": [_digits(median(part)) for part in stretches]}]
    if not single:
        series.append({"label": "longest", "values": [_digits(max(part)) for part in stretches]})
    means = f", as means of {run.steps_each} steps" if run.steps_each > 1 else ""
    return {
        "place": "chart-steps",
        "caption": f"Time of a step (ms), warm-up included{means}",
        "x": "step",
        "y": "ms",
        "xs": [first * run.steps_each for first, _ in edges],
        "series": series,
    }


def _losses(run: Run) -> dict[str, Any] | None:
    """Return the losses that were recorded; those that are no number leave a gap."""
    if len(run.losses) < 2:
        return None
    edges = _edges(len(run.losses))
    values = [_middle(run.losses[first:last]) for first, last in edges]
    if all(value is None for value in values):
        return None
    middles = ", the median of each stretch" if len(edges) < len(run.losses) else ""
    return {
        "place": "chart-losses",
        "caption": f"Loss of the script as it is: the first {len(run.losses):,} that were recorded{middles}",
        "x": "loss number",
        "y": "",
        "xs": [first for first, _ in edges],
        "series": [{"label": "loss", "values": values}],
    }


def _cores(run: Run) -> dict[str, Any] | None:
    """Return who kept the cores busy."""
    names = {
        "training process": [each.main_cpu for each in run.utilization],
        "its workers": [each.worker_cpu for each in run.utilization],
        "other programs": [each.foreign_cpu for each in run.utilization],
    }
    return _over_time(run.utilization, "chart-cores", "Cores kept busy", "cores", names)


def _gpu(run: Run) -> dict[str, Any] | None:
    """Return how busy the device was, where there is one."""
    if not any(each.gpu_busy > 0 for each in run.utilization):
        return None
    names = {"busy": [each.gpu_busy for each in run.utilization]}
    return _over_time(run.utilization, "chart-gpu", "GPU, share of the time busy", "", names)


def _memory(run: Run) -> dict[str, Any] | None:
    names = {"resident": [each.memory_bytes / 2**30 for each in run.utilization]}
    if any(each.gpu_memory_bytes for each in run.utilization):
        names["GPU"] = [each.gpu_memory_bytes / 2**30 for each in run.utilization]
    return _over_time(run.utilization, "chart-memory", "Memory (GiB)", "GiB", names)


def _over_time(
    samples: Sequence[Utilization], place: str, caption: str, unit: str, names: dict[str, list[float]]
) -> dict[str, Any] | None:
    if len(samples) < 2:
        return None
    edges = _edges(len(samples))
    series = [
        {"label": name, "values": [_middle(values[first:last]) for first, last in edges]}
        for name, values in names.items()
    ]
    times = [_digits(samples[first].at_s) for first, _ in edges]
    return {"place": place, "caption": caption, "x": "s", "y": unit, "xs": times, "series": series}


def _edges(number: int) -> list[tuple[int, int]]:
    """Return the stretches that `number` values are cut into, at most as many as a screen can show."""
    parts = min(number, MAX_POINTS)
    cuts = [part * number // parts for part in range(parts + 1)]
    return list(pairwise(cuts))


def _middle(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return _digits(median(finite)) if finite else None


def _digits(value: float) -> float:
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0
