"""The numbers of one replayed step, of a trajectory, and of every bit, each held to its limit.

Limits are measured on the script itself wherever that is possible: how far gradients and losses move when every weight
moves by one unit in the last place (`nudged`), and how far the baseline itself is off float64 (`reference`). A tensor
that is rounding noise in the baseline too, as a bias before a batch norm, so cannot fail.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flatout.analysis.invariants import common
from flatout.analysis.samples import first_difference
from flatout.analysis.traces import Deviation, Replayed, Trace, TraceRow
from flatout.schema.trial import Check

__all__ = ["GateLimits", "bit_equality", "replay_gates", "trajectory_gate"]

_NOISE = 0.5  # a limit from which on a tensor says nothing: it is noise in the baseline as well
_PROJECTED = 0.25  # of the relative error of the gradients may show in their projection on the right ones
_UNIT = 2.0**-24  # rounding of float32, relative
_SANE = 0.05  # error of the baseline against float64 above which that is another function: other random numbers
_TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """What a class allows at a replayed step, and how much more where the script itself is more sensitive."""

    loss: float
    gradient: float  # relative error of one tensor, and of all together
    cosine: float  # of all gradients together
    scale: float  # |<g, g0> / <g0, g0> - 1| of all gradients together; of the norm of the update
    update: float  # relative error of the update of one tensor
    buffer: float
    share: float  # of the norm of all below which a tensor's error is measured against that share
    gross: float  # times its limit that one step in four may pass it: an activation at a kink falls to either side
    nudged: float  # times the error that a nudge of the weights makes
    own: float  # times the baseline's own error against float64, both in units of their precision
    pooled: float = 3.0  # times the worst error against float64 that any tensor of the baseline has in any step
    unit: float = _UNIT  # rounding of the candidate's arithmetic, relative
    floor: float = 3e-5  # of the band of losses, relative
    band: float = 3.0  # times the band that a nudge opens


# -- every bit --------------------------------------------------------------------------------------------------


def bit_equality(baseline: Trace, candidate: Trace) -> Iterator[Check]:
    """Yield whether losses and, after every step, parameters and buffers are equal to the last bit."""
    num = common(baseline, candidate)
    pairs = list(zip(baseline.intervals[:num], candidate.intervals[:num], strict=True))
    losses = (
        (one.step, f"the loss of step {one.step} is {other.loss!r}, not {one.loss!r}")
        for one, other in pairs
        if one.losses != other.losses
    )
    yield first_difference("losses, every bit", losses, f"{num} steps")
    parameters = (
        (one.step, f"{_which(one.prints, other.prints, one.names)} differs after step {one.step}")
        for one, other in pairs
        if one.prints != other.prints
    )
    yield first_difference("parameters, every bit", parameters, f"{num} steps")


def _which(wanted: str, found: str, names: tuple[str, ...]) -> str:
    places = [
        place for place in range(0, max(len(wanted), len(found)), 16) if wanted[place:][:16] != found[place:][:16]
    ]
    named = [names[place // 16] for place in places if place // 16 < len(names)]
    return f"{named[0]} (with {len(places) - 1} more)" if len(named) > 1 else (named or ["a parameter"])[0]


# -- one step from the same state -------------------------------------------------------------------------------


def replay_gates(
    candidate: Trace, nudged: Trace | None, reference: Trace | None, limits: GateLimits
) -> Iterator[Check]:
    """Yield the checks of every replayed step."""
    kinds: dict[str, list[Check]] = {}
    pool = _pool(candidate, reference, limits)
    for step, replayed in sorted(candidate.replays.items()):
        moved = nudged.replays.get(step) if nudged is not None else None
        own = reference.references.get(step) if reference is not None else None
        for check in _OneStep(replayed, moved or Replayed(step=step), own, limits, pool).checks():
            kinds.setdefault(check.name.partition(" of step ")[0], []).append(check)
    for checks in kinds.values():
        yield from _without_kinks(checks, limits.gross)
    if candidate.replays:
        yield from _sizes(candidate, nudged, limits)


def _pool(candidate: Trace, reference: Trace | None, limits: GateLimits) -> float:
    """Return the worst error of the baseline against float64, over tensors and steps; tensors of noise left out.

    Rounding pushes activations over the kinks of ReLUs, in other places with each order of summation, and what lies
    behind such a place is off by much more than rounding. Measured on a ResNet of 32x32 images: weights of one block
    off by 2e-3 and of the next by 1e-6, and the other way round with the memory in another order.
    """
    worst = 0.0
    for step in candidate.replays if reference is not None and limits.own else ():
        own = reference.references.get(step) if reference is not None else None
        if own is not None and own.error < _SANE:
            errors = (min(row.error, row.of_all / limits.share) for row in own.rows if row.error is not None)
            worst = max(worst, *(error for error in errors if error < _NOISE), 0.0)
    return limits.pooled * worst


def _without_kinks(checks: list[Check], gross: float) -> list[Check]:
    """Return the checks of one kind with a wider limit for the few steps, if they are few, that did not pass.

    Rounding can push an activation over the kink of a ReLU or to the other side of a maximum. That shows in one step,
    not in most of them; what computes something else shows in all.
    """
    failed = [check for check in checks if not check.passed]
    forgiven = max(1, len(checks) // 4) if len(checks) >= 3 else 0
    if not 0 < len(failed) <= forgiven:
        return checks
    return [
        replace(check, passed=True, limit=check.limit * gross, detail="one step at a kink")
        if not check.passed and check.value <= check.limit * gross
        else check
        for check in checks
    ]


class _OneStep:
    """One replayed step, with what a nudge of the weights does to it, and how far the baseline is off float64."""

    def __init__(
        self, replayed: Replayed, moved: Replayed, own: Deviation | None, limits: GateLimits, pool: float = 0.0
    ) -> None:
        self._replayed, self._moved, self._limits = replayed, moved, limits
        self._step = replayed.step
        self._pool = pool
        against = replayed.against_reference
        usable = against is not None and own is not None and own.error < _SANE
        self._own = own if usable else None
        self._gradients = against if usable and against is not None else replayed.gradients

    def checks(self) -> Iterator[Check]:
        found, wanted = self._replayed.losses
        scale = max(abs(wanted), _TINY)
        allowed = max(self._limits.loss, self._limits.nudged * _off(*self._moved.losses))
        detail = f"the loss of step {self._step} is {found:.8g}, not {wanted:.8g}"
        yield self._held("loss", abs(found - wanted) / scale, allowed, detail)
        yield from self._each_gradient()
        yield from self._all_gradients()
        yield from self._changes("update", self._replayed.updates, self._moved.updates, self._limits.update)
        yield from self._changes("buffer", self._replayed.buffers, self._moved.buffers, self._limits.buffer)

    def _each_gradient(self) -> Iterator[Check]:
        for name in self._replayed.not_finite[:1]:
            yield self._lost("gradients", f"the gradient of {name} is not finite in step {self._step}")
        for name in self._replayed.gradients.extra[:1]:
            yield self._lost("gradients", f"{name} has a gradient in step {self._step} and should have none")
        nudges, owns = self._moved.gradients.errors(), self._own.errors() if self._own is not None else {}
        measured = []
        for row in self._gradients.rows:
            where = f"the gradient of {row.name} in step {self._step}"
            if row.error is None:
                yield self._lost("gradients", f"{where} is missing")
                continue
            allowed = self._allowed(nudges.get(row.name, 0.0), owns.get(row.name, 0.0))
            detail = f"{where} is off by {row.error:.2g} of its norm (allowed: {allowed:.2g})"
            if allowed < _NOISE:
                measured.append(self._held("gradients", self._felt(row), allowed, detail))
        yield from _worst(measured)

    def _all_gradients(self) -> Iterator[Check]:
        step, found, moved = self._step, self._gradients, self._moved.gradients
        allowed = self._allowed(moved.error, self._own.error if self._own is not None else 0.0)
        detail = f"all gradients together are off by {found.error:.2g} in step {step} (allowed: {allowed:.2g})"
        yield self._held("all gradients", found.error, allowed, detail)
        allowed = max(1 - self._limits.cosine, self._limits.nudged * (1 - moved.cosine), self._pool**2)
        detail = f"the gradients of step {step} point elsewhere: cosine {found.cosine:.6f}"
        yield self._held("direction", 1 - found.cosine, allowed, detail)

    def _changes(self, what: str, found: Deviation, moved: Deviation, limit: float) -> Iterator[Check]:
        """Yield the worst of what the step has changed: parameters, or buffers."""
        nudges = moved.errors()
        measured = []
        for row in found.rows:
            if row.error is None:
                yield self._lost(f"{what}s", f"{row.name} is gone in step {self._step}")
                continue
            allowed = max(limit, self._limits.nudged * nudges.get(row.name, 0.0), self._pool if what == "update" else 0)
            detail = f"the {what} of {row.name} is off by {row.error:.2g} in step {self._step} (allowed: {allowed:.2g})"
            if allowed < _NOISE:
                error = row.error if what == "buffer" else self._felt(row)
                measured.append(self._held(f"{what}s", error, allowed, detail))
        yield from _worst(measured)

    def _felt(self, row: TraceRow) -> float:
        """Return a tensor's error, against a share of the norm of all where its own is smaller: sums that cancel."""
        assert row.error is not None
        return min(row.error, row.of_all / self._limits.share)

    def _allowed(self, nudged: float, own: float) -> float:
        """Return the largest error: the class's constant, or what a nudge and the baseline's own error say."""
        coarser = self._limits.unit / _UNIT if own < self._limits.unit else 1.0  # else the baseline is as coarse
        return max(self._limits.gradient, self._limits.nudged * nudged, self._limits.own * own * coarser, self._pool)

    def _held(self, what: str, value: float, limit: float, detail: str) -> Check:
        return _held(f"{what} of step {self._step}", value, limit, detail, self._step)

    def _lost(self, what: str, detail: str) -> Check:
        name = f"{what} of step {self._step}"
        return Check(name=name, passed=False, value=math.inf, detail=detail, step=self._step)


def _sizes(candidate: Trace, nudged: Trace | None, limits: GateLimits) -> Iterator[Check]:
    """Yield whether gradients and updates are as large as they should be, in the mean over all replayed steps.

    Noise of relative size e moves one projection by much less than e, and the mean of several by less again; a loss or
    a rate that is 1 % off moves all of them alike. Tensors that are noise in the baseline are left out.
    """
    num = len(candidate.replays)
    noise = math.fsum(each.gradients.error for each in candidate.replays.values()) / num / math.sqrt(num)
    allowed = max(limits.scale, _PROJECTED * noise)
    scales, lengths = [], []
    for step, replayed in candidate.replays.items():
        moved = nudged.replays.get(step, Replayed(step=step)) if nudged is not None else Replayed(step=step)
        scales.append(_mean(replayed.gradients, moved.gradients, limits, lambda row: row.scale))
        lengths.append(math.sqrt(max(0.0, _mean(replayed.updates, moved.updates, limits, _squared_length))))
    steps = ", ".join(str(step) for step in sorted(candidate.replays))
    scale, length = math.fsum(scales) / num, math.fsum(lengths) / num
    detail = f"the gradients of steps {steps} are {scale:.4f} times as large"
    yield _held("size of the gradients", abs(scale - 1), allowed, detail)
    detail = f"in steps {steps} the parameters move {length:.4f} times as far"
    yield _held("size of the updates", abs(length - 1), allowed, detail)


def _squared_length(row: TraceRow) -> float:
    """Return the squared norm of what was found, relative to what was wanted."""
    return (row.error or 0.0) ** 2 + 2 * row.scale - 1


def _mean(found: Deviation, moved: Deviation, limits: GateLimits, measure: Callable[[TraceRow], float]) -> float:
    """Return the mean of a measure over tensors that are no noise, by their share of the squared norm."""
    nudges = moved.errors()
    rows = [row for row in found.rows if row.error is not None and row.weight > 0]
    rows = [row for row in rows if limits.nudged * nudges.get(row.name, 0.0) < _NOISE]
    total = math.fsum(row.weight for row in rows)
    return math.fsum(row.weight * measure(row) for row in rows) / total if total else 1.0


def _worst(checks: list[Check]) -> Iterator[Check]:
    """Yield the check that came closest to its limit, or passed it by most."""
    if checks:
        yield max(checks, key=lambda check: check.value / check.limit if check.value == check.value else math.inf)


def _off(found: float, wanted: float) -> float:
    return abs(found - wanted) / max(abs(wanted), _TINY)


def _held(name: str, value: float, limit: float, detail: str, step: int | None = None) -> Check:
    passed = value <= limit
    return Check(name=name, passed=passed, value=value, limit=limit, detail="" if passed else detail, step=step)


# -- the trajectory ---------------------------------------------------------------------------------------------


def trajectory_gate(baseline: Trace, nudged: Trace, candidate: Trace, limits: GateLimits) -> Iterator[Check]:
    """Yield whether the losses stay inside a few times the band that the nudge has opened up to that step."""
    num = min(common(baseline, candidate), common(baseline, nudged))
    truth = [interval.loss for interval in baseline.intervals[:num]]
    finite = [abs(loss) for loss in truth if math.isfinite(loss)]
    usual = max(statistics.median(finite), _TINY) if finite else 1.0
    band = 0.0
    checks = []
    for wanted, other, mine in zip(truth, nudged.intervals[:num], candidate.intervals[:num], strict=True):
        if not math.isfinite(wanted):
            break
        scale = max(abs(wanted), usual)
        band = max(band, abs(other.loss - wanted) / scale) if math.isfinite(other.loss) else math.inf
        off = abs(mine.loss - wanted) / scale if math.isfinite(mine.loss) else math.inf
        detail = f"the loss of step {mine.step} is {mine.loss:.6g}, not {wanted:.6g}: a nudge of the weights does less"
        checks.append(_held("trajectory", off, limits.band * band + limits.floor, detail, mine.step))
    failed = [check for check in checks if not check.passed]
    yield from failed[:1] or _worst(checks)
