"""Two sets of recordings side by side: is the second slower, by how much, in which phase, and why.

Steps of one recording share a start of the process, a placement on the cores and a moment of the machine; so what is
counted is recordings, not steps. With six recordings or more, their own spread makes the interval. With fewer there is
little else to go by than what the machine does within a recording, from one quarter of it to the next; twice that, and
never less than 3 %, is taken for what it does from one recording to the next.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flatout.analysis.judge import t_quantile, t_tail
from flatout.analysis.statistics import block_mean
from flatout.schema.difference import Change, Difference, Surrounding
from flatout.schema.finding import Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.report import Report
from flatout.schema.run import Environment

__all__ = ["ALPHA", "ASSUMED", "FEWEST_STEPS", "Gate", "difference", "judge_limit"]

ALPHA = 0.01
"""Chance of calling a step slower that is not, in one comparison with a limit; with fewer than six recordings it rests
on what is assumed of one."""

FEWEST_STEPS = 8
"""Steady steps that a recording needs: two for each of its quarters."""

_LEAST_NOISE = 0.005
"""Recordings are never taken to scatter by less: a few alike are no proof of a quiet machine."""

_ENOUGH = 4
"""Degrees of freedom (recordings less two) from which the recordings' own spread is all that is used."""

ASSUMED = 0.03
_TIMES_WITHIN = 2.0
_ASSUMED_FREEDOM = 3
"""With fewer: what is assumed of one recording, and for how many degrees of freedom it counts beside what was seen.

The moderated variance of Smyth, "Linear Models and Empirical Bayes Methods", Statistical Applications in Genetics and
Molecular Biology 3 (2004); three, as the four quarters of a recording have.
"""

_QUARTERS = 4
_SAME_SAMPLES = 0.005
_WORTH_SHARE = 0.02
"""A finding with a smaller share comes and goes by chance."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a limit says: `passed` is None where it cannot be told."""

    passed: bool | None
    reason: str


def difference(before: Sequence[Report], after: Sequence[Report], *, shared: float = 0.0) -> Difference:
    """Return what changed from `before` to `after`.

    `shared` is the standard deviation, as a share, of what all recordings of a side have in common where they do not
    stand for themselves: several in one process have one start and one placement.

    Raises:
        ValueError: a side is empty, or a report has fewer than eight steady steps.
    """
    fewest = min((len(report.breakdown.step_ms) for report in (*before, *after)), default=0)
    if not before or not after or fewest < FEWEST_STEPS:
        raise ValueError(f"nothing to compare: each side needs a recording, and each recording {FEWEST_STEPS} steps")
    samples = _samples(before), _samples(after)
    scale = _scale(*samples)
    logs = [[math.log(_positive(report.breakdown.mean_ms)) for report in side] for side in (before, after)]
    wobble = statistics.fmean(_wobble(report.breakdown.step_ms) for report in (*before, *after))
    noise, freedom = _noise(logs, wobble, unit=1.0)
    center = statistics.fmean(logs[1]) - statistics.fmean(logs[0]) + math.log(scale)
    error = math.hypot(noise * _root(logs), math.sqrt(2) * shared)
    width = t_quantile(0.975, freedom) * error
    return Difference(
        script=after[-1].run.header.script,
        num_before=len(before),
        num_after=len(after),
        before_ms=statistics.fmean(report.breakdown.mean_ms for report in before),
        after_ms=statistics.fmean(report.breakdown.mean_ms for report in after) * scale,
        ratio=math.exp(center),
        low=math.exp(center - width),
        high=math.exp(center + width),
        noise=noise,
        chance=t_tail(center / error, freedom),
        phases=_phases(before, after, scale),
        came=_only_in(after, before),
        went=_only_in(before, after),
        surroundings=_surroundings(before, after),
        samples_before=samples[0] if scale != 1.0 else None,
        samples_after=samples[1] if scale != 1.0 else None,
    )


def judge_limit(found: Difference, limit: float) -> Gate:
    """Return whether the second side stays within `limit` (0.05: 5 % slower than the first).

    It does not where the estimate is above the limit and being slower at all is beyond noise (one-sided, 1 %). It
    cannot be told where the interval is so wide that a slow-down of the limit would go unseen.
    """
    slower = found.ratio - 1
    if slower > limit and found.chance <= ALPHA:
        return Gate(False, "the step takes longer than the limit allows, and that it takes longer is beyond noise")
    if found.high - 1 <= limit:
        return Gate(True, "the step stays within the limit")
    width = found.high / found.ratio - 1
    if width > limit:
        return Gate(None, f"noise of {width:.1%} hides a slow-down of the limit")
    if slower > limit:
        return Gate(None, "the step took longer than the limit allows, but not so surely that chance is ruled out")
    return Gate(True, "the step is not shown to take longer than the limit allows")


# -- the step -------------------------------------------------------------------------------------------------------


def _noise(sides: Sequence[Sequence[float]], wobble: float, *, unit: float) -> tuple[float, int]:
    """Return the standard deviation of one recording and its degrees of freedom.

    `wobble` is the variance within recordings, `unit` what the least and the assumed share are shares of.
    """
    squares = sum(sum((value - statistics.fmean(side)) ** 2 for value in side) for side in sides)
    freedom = sum(len(side) - 1 for side in sides)
    if freedom >= _ENOUGH:
        return max(math.sqrt(squares / freedom), _LEAST_NOISE * unit), freedom
    assumed = max((ASSUMED * unit) ** 2, _TIMES_WITHIN**2 * wobble)
    freedom += _ASSUMED_FREEDOM
    return math.sqrt((_ASSUMED_FREEDOM * assumed + squares) / freedom), freedom


def _root(sides: Sequence[Sequence[float]]) -> float:
    return math.sqrt(sum(1 / len(side) for side in sides))


def _wobble(values: Sequence[float]) -> float:
    """Return the variance of the logs of the means of four quarters of `values`."""
    return statistics.variance([math.log(_positive(mean)) for mean in _quarter_means(values)])


def _quarter_means(values: Sequence[float]) -> list[float]:
    """Return the means of the quarters, stalls drawn in: the account has taken epoch gaps out, raw steps hold them."""
    edges = [round(part * len(values) / _QUARTERS) for part in range(_QUARTERS + 1)]
    return [block_mean(values[first:last]) for first, last in pairwise(edges)]


def _samples(side: Sequence[Report]) -> float | None:
    """Return the samples of a step, None where a recording of the side does not tell."""
    told = [report.run.samples_per_step or 0.0 for report in side]
    known = [samples for samples in told if 0 < samples < math.inf]
    return statistics.median(known) if len(known) == len(side) else None


def _scale(before: float | None, after: float | None) -> float:
    """Return what times of the second side are multiplied by, so that they are of as many samples as the first's."""
    if before is None or after is None or abs(after / before - 1) <= _SAME_SAMPLES:
        return 1.0
    return before / after


def _positive(value: float) -> float:
    return max(value, 1e-6)


# -- its phases -----------------------------------------------------------------------------------------------------


def _phases(before: Sequence[Report], after: Sequence[Report], scale: float) -> tuple[Change, ...]:
    """Return every phase that occurs on either side, with the interval of its change."""
    return tuple(
        _change(phase, before, after, scale)
        for phase in STEP_PHASES
        if any(report.breakdown.ms(phase) > 0 for report in (*before, *after))
    )


def _change(phase: Phase, before: Sequence[Report], after: Sequence[Report], scale: float) -> Change:
    sides = [
        [report.breakdown.ms(phase) * factor for report in side] for side, factor in ((before, 1.0), (after, scale))
    ]
    middle = [statistics.fmean(side) for side in sides]
    wobble = statistics.fmean(_phase_wobble(report, phase) for report in (*before, *after))
    noise, freedom = _noise(sides, wobble, unit=max(middle))
    width = t_quantile(0.975, freedom) * noise * _root(sides)
    return Change(
        name=phase.value,
        before_ms=middle[0],
        after_ms=middle[1],
        low_ms=middle[1] - middle[0] - width,
        high_ms=middle[1] - middle[0] + width,
    )


def _phase_wobble(report: Report, phase: Phase) -> float:
    """Return the variance of the means of four quarters of the steady steps, in squared milliseconds."""
    number = len(report.breakdown.step_ms)
    place = STEP_PHASES.index(phase)
    return statistics.variance(_quarter_means([step.phases_ns[place] / 1e6 for step in report.run.steps[-number:]]))


# -- why ------------------------------------------------------------------------------------------------------------


def _only_in(side: Sequence[Report], other: Sequence[Report]) -> tuple[Finding, ...]:
    """Return the findings of most recordings of `side` that none of `other` has, the largest share first.

    They are told by code, file and function, not by line: lines move from one commit to the next.
    """
    there = {_key(finding) for report in other for finding in report.findings}
    seen: dict[tuple[str, str, str], list[Finding]] = {}
    for report in side:
        for key, finding in {_key(each): each for each in report.findings}.items():
            seen.setdefault(key, []).append(finding)
    found = [
        max(all_of_it, key=lambda finding: finding.share)
        for key, all_of_it in seen.items()
        if key not in there and 2 * len(all_of_it) >= len(side)
    ]
    worth = [each for each in found if each.share >= _WORTH_SHARE and not each.code.startswith("MS")]
    return tuple(sorted(worth, key=lambda finding: -finding.share))


def _key(finding: Finding) -> tuple[str, str, str]:
    place = finding.location
    name = place.file.replace("\\", "/").rpartition("/")[2] if place is not None else ""
    return finding.code, name, place.function if place is not None else ""


def _surroundings(before: Sequence[Report], after: Sequence[Report]) -> tuple[Surrounding, ...]:
    """Return what differs in machine, software and kind of recording."""
    first, last = [_described(report) for report in before], [_described(report) for report in after]
    names = dict.fromkeys(name for side in (first, last) for facts in side for name in facts)
    found = []
    for name in names:
        left, right = (
            ", ".join(sorted({facts.get(name, "") or "not set" for facts in side})) for side in (first, last)
        )
        if left != right:
            found.append(Surrounding(name, left, right))
    return tuple(found)


def _described(report: Report) -> dict[str, str]:
    environment: Environment = report.run.environment
    return {
        "script": report.run.header.script,
        "kind of recording": report.run.header.mode,
        "device": environment.device,
        "devices": str(environment.num_devices),
        "ranks": str(report.run.header.world_size),
        "cores": str(environment.num_cpus),
        "CPU": environment.cpu,
        "platform": environment.platform,
        "Python": environment.python,
        "torch": environment.torch,
        "threads of torch": str(environment.torch_threads),
        "start method": environment.start_method,
        **environment.variables,
    }
