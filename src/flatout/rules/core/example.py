"""Synthetic runs with a known fault: the rules are tested on them, and their pages can show them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean, median
from typing import Any

from flatout.schema.finding import Breakdown, Ceiling, OutsideShare, PhaseShare
from flatout.schema.phase import OUTSIDE_PHASES, STEP_PHASES, Phase
from flatout.schema.run import Causes, Frame, Header, LineCost, Outside, Run, Step

__all__ = ["Example", "account", "example", "line", "steps_of"]

MILLISECOND = 1_000_000  # nanoseconds


class Example:
    """A Run with its time account and ceilings, ready to be handed to a check.

    It is made when it is first asked for: rules have hundreds of them, and a diagnosis asks for none.
    """

    def __init__(
        self, make: Callable[[], Run], headroom: tuple[Ceiling, ...] = (), told: Mapping[str, Any] | None = None
    ) -> None:
        """Take what makes the Run, the measured ceilings, and fields of the account that are not counted from it."""
        self._make = make
        self._told = told or {}
        self.headroom = headroom

    @cached_property
    def run(self) -> Run:
        """Return the Run."""
        return self._make()

    @cached_property
    def breakdown(self) -> Breakdown:
        """Return its time account."""
        return replace(account(self.run), **self._told)


def example(
    *,
    step_ms: float = 100.0,
    n: int = 60,
    steps: Sequence[Step] = (),
    outside_s: Mapping[Phase, float] | None = None,
    headroom: tuple[Ceiling, ...] = (),
    lines: Sequence[LineCost] = (),
    told: Mapping[str, Any] | None = None,
    **detail: Any,
) -> Example:
    """Return a Run of `n` equal steps of `step_ms`, with its time account.

    Args:
        step_ms: wall time of a step.
        n: number of steps.
        steps: the steps themselves, in place of `n` equal ones.
        outside_s: seconds between the steps by phase; each becomes one `Outside`.
        headroom: the measured ceilings.
        lines: what the deep run saw; it is assumed to have run the same steps at the same speed.
        told: fields of the account that are not counted from the steps (`warmup=`).
        detail: a phase of the step by name (`input=62`, in milliseconds; the rest of the step is host time), a fact of
            every step (`epoch=1`, `device_ns=...`), or a field of `Run` (`loaders=`, `causes=`, `environment=`, ...).
    """
    return Example(lambda: _made(step_ms, n, steps, outside_s or {}, lines, detail), headroom, told)


def _made(
    step_ms: float,
    n: int,
    steps: Sequence[Step],
    outside_s: Mapping[Phase, float],
    lines: Sequence[LineCost],
    detail: dict[str, Any],
) -> Run:
    phases_ms = {phase: float(detail.pop(phase.value, 0.0)) for phase in STEP_PHASES}
    per_step = {name: detail.pop(name) for name in ("num_batches", "host_parts_ns", "device_ns") if name in detail}
    if not steps:
        phases_ms[Phase.HOST] += step_ms - sum(phases_ms.values())
        steps = steps_of([phases_ms] * n, **per_step)
    outside = tuple(detail.pop("outside", ())) or _stretches(outside_s, steps)
    if lines and "causes" not in detail:
        detail["causes"] = Causes(lines=tuple(lines), num_steps=len(steps), wall_s=sum(s.wall_ns for s in steps) / 1e9)
    detail.setdefault("header", Header(script="train.py"))
    return Run(steps=tuple(steps), outside=outside, **detail)


def steps_of(phases_ms: Sequence[Mapping[Phase, float]], **per_step: Any) -> tuple[Step, ...]:
    """Return consecutive steps, each made of the given milliseconds by phase."""
    steps = []
    start = 0
    for number, parts in enumerate(phases_ms):
        phases = tuple(round(parts.get(phase, 0.0) * MILLISECOND) for phase in STEP_PHASES)
        detail = {name: value[number] if isinstance(value, list) else value for name, value in per_step.items()}
        steps.append(Step(start_ns=start, wall_ns=sum(phases), phases_ns=phases, **detail))
        start += sum(phases)
    return tuple(steps)


def line(
    seconds: float,
    *frames: tuple[str, int, str],
    phase: Phase = Phase.INPUT,
    process: str = "main",
    stage: str = "",
    leaf: str = "",
    **detail: Any,
) -> LineCost:
    """Return the cost of a chain of user lines, innermost first, each `(file, line, function)`, at 100 samples/s."""
    stack = tuple(Frame(*frame) for frame in frames)
    detail.setdefault("samples", max(1, round(seconds * 100)))
    return LineCost(process=process, phase=phase, stage=stage, stack=stack, leaf=leaf, seconds=seconds, **detail)


def account(run: Run) -> Breakdown:
    """Return the time account of an example's Run, all of whose steps count as steady."""
    walls_ms = tuple(step.wall_ns / MILLISECOND for step in run.steps)
    if not any(walls_ms):
        return Breakdown(phases=tuple(PhaseShare(phase, 0.0, 0.0) for phase in STEP_PHASES))
    mean_ms, median_ms = fmean(walls_ms), median(walls_ms)
    parts = [fmean(step.phases_ns[i] for step in run.steps) / MILLISECOND for i in range(len(STEP_PHASES))]
    between = {phase: sum(o.wall_ns for o in run.outside if o.phase == phase) / 1e9 for phase in OUTSIDE_PHASES}
    wall_s = sum(walls_ms) / 1000 + sum(between.values())
    return Breakdown(
        phases=tuple(PhaseShare(p, ms, ms / mean_ms) for p, ms in zip(STEP_PHASES, parts, strict=True)),
        outside=tuple(OutsideShare(phase, s, s / wall_s) for phase, s in between.items()),
        measured=len(walls_ms),
        median_ms=median_ms,
        mean_ms=mean_ms,
        p5_ms=sorted(walls_ms)[int(0.05 * (len(walls_ms) - 1))],
        p95_ms=sorted(walls_ms)[int(0.95 * (len(walls_ms) - 1))],
        spread=1.4826 * median(abs(wall - median_ms) for wall in walls_ms) / (median_ms or 1.0),
        wall_s=wall_s,
        loop_s=wall_s - between[Phase.STARTUP],
        step_ms=walls_ms,
    )


def _stretches(outside_s: Mapping[Phase, float], steps: Sequence[Step]) -> tuple[Outside, ...]:
    """Return one stretch after the steps for each phase named."""
    start = steps[-1].start_ns + steps[-1].wall_ns if steps else 0
    stretches = []
    for phase, seconds in outside_s.items():
        stretches.append(Outside(phase=phase, start_ns=start, wall_ns=round(seconds * 1e9)))
        start += stretches[-1].wall_ns
    return tuple(stretches)
