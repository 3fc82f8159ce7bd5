"""The equality ladder: whether training results stayed as equal under a fix as the fix promises.

Every class keeps the invariants (`analysis.invariants`). BITWISE adds equality of every loss, parameter and buffer to
the last bit; ROUNDING and PRECISION add captured steps gone through from the same state, tensor by tensor, and a
trajectory inside the band that a nudge of the weights opens (`analysis.gates`). Where the untouched script does not
give the same bits twice, its own spread takes the place of bit equality. What cannot be judged is said to be so.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from flatout.analysis.equality_gates import GateLimits, bit_equality, replay_gates, trajectory_gate
from flatout.analysis.invariants import common, finite_check, invariants
from flatout.analysis.printed_lines import printed_check, saved_check
from flatout.analysis.traces import Trace
from flatout.schema.trial import Check, Equality, Equivalence

__all__ = [
    "FEWEST_STEPS",
    "LIMITS",
    "MOST_LOSSES",
    "changed_by_watching",
    "deterministic",
    "fails_in_every_class",
    "judge",
]

FEWEST_STEPS = 3
"""Steps below which nothing is said."""

MOST_LOSSES = 1000
"""Losses that are kept with a trial, to be shown: more cannot be told apart on a page."""

_OF_BITWISE = ("losses, every bit", "parameters, every bit", "optimizer steps", "module inputs")
"""Names of checks that weaker classes do without, or make in a milder form."""

LIMITS = {
    Equivalence.BITWISE: GateLimits(  # of a script that is not deterministic: held to its own spread
        loss=1e-6, gradient=1e-5, cosine=1 - 1e-8, scale=1e-4, update=1e-4, buffer=1e-6, share=1e-2, gross=100.0,
        nudged=4.0, own=0.0,
    ),
    Equivalence.ROUNDING: GateLimits(
        loss=1e-5, gradient=1e-4, cosine=1 - 1e-6, scale=1e-3, update=1e-3, buffer=1e-5, share=1e-2, gross=300.0,
        nudged=10.0, own=10.0, floor=3e-4, band=10.0,
    ),
    Equivalence.PRECISION: GateLimits(
        loss=3e-3, gradient=0.1, cosine=0.99, scale=5e-3, update=0.3, buffer=1e-2, share=1e-3, gross=2.0,
        nudged=2.0, own=2.0, unit=2.0**-8, floor=1e-2,
    ),
}  # fmt: skip
"""What each class allows where the script itself is not more sensitive."""


def deterministic(baseline: Trace, again: Trace) -> bool:
    """Return whether the untouched script has given the same bits twice."""
    return bool(common(baseline, again)) and all(check.passed for check in bit_equality(baseline, again))


def changed_by_watching(baseline: Trace, bare: Trace) -> str:
    """Return what differs in `bare`, the script whose modules nobody watches, from `baseline`; "" where nothing does.

    Losses and the optimizers' parameters are compared to the last bit: the script must be deterministic.
    """
    for one, other in zip(baseline.intervals, bare.intervals, strict=False):
        shown = one.prints[: len(other.prints)]  # those of the optimizer come first
        if one.losses != other.losses or shown != other.prints:
            what = "the loss" if one.losses != other.losses else "a parameter"
            return (
                f"{what} of step {one.step} is another one when flatout does not watch the script's modules,"
                " so that nothing can be measured without changing the training: please report it"
            )
    return ""


def judge(
    claimed: Equivalence,
    baseline: Trace,
    again: Trace,
    nudged: Trace | None,
    reference: Trace | None,
    candidate: Trace,
    bare: Trace | None = None,
) -> Equality:
    """Return whether `candidate` is as equal to `baseline` as the class `claimed` promises.

    `nudged` is needed for ROUNDING and PRECISION, and for BITWISE where `again` differs from the baseline: there it is
    the untouched script once more, replayed. `reference` tightens and explains limits where there is one. `bare` is the
    untouched script a third time, for what it prints.
    """
    same = deterministic(baseline, again)
    blank = Equality(
        claimed=claimed,
        equal=None,
        deterministic=same,
        num_steps=common(baseline, candidate),
        losses=_losses(baseline),
        candidate_losses=_losses(candidate),
    )
    reason = _unjudgeable(claimed, baseline, again, nudged, candidate, same=same)
    if reason:
        return replace(blank, reason=reason)
    checks = tuple(_checks(claimed, baseline, nudged, reference, candidate, same=same))
    failed = [check for check in checks if not check.passed]
    if same and not failed:
        several = (baseline, again, bare, nudged)
        told = tuple(_told(claimed, [each for each in several if each is not None and each.intervals], candidate))
        failed = [check for check in told if not check.passed]
        checks = (*checks, *told)
    first = min(failed, key=lambda check: math.inf if check.step is None else check.step, default=None)
    return replace(blank, equal=first is None, checks=checks, reason=first.detail if first else "")


def _told(claimed: Equivalence, untouched: Sequence[Trace], candidate: Trace) -> Iterator[Check]:
    """Yield the checks of what a script prints and saves, as far as a class says anything of that."""
    steps = [each.intervals for each in untouched]
    if claimed in (Equivalence.BITWISE, Equivalence.ROUNDING):
        yield printed_check(steps, candidate.intervals, rounded=claimed is Equivalence.ROUNDING)
    if claimed is Equivalence.BITWISE:
        yield saved_check(steps, candidate.intervals)


def fails_in_every_class(found: Equality) -> bool:
    """Return whether what failed bit equality fails in weaker classes, too: other samples, another learning rate."""
    return any(not check.passed and check.name not in _OF_BITWISE for check in found.checks)


def _losses(trace: Trace) -> tuple[float, ...]:
    """Return the losses to be shown, up to the first that is no number."""
    shown = trace.intervals[:MOST_LOSSES]
    return tuple(each.loss for each in takewhile(lambda each: math.isfinite(each.loss), shown))


def _unjudgeable(
    claimed: Equivalence, baseline: Trace, again: Trace, nudged: Trace | None, candidate: Trace, *, same: bool
) -> str:
    """Return why nothing can be said, "" when something can."""
    if claimed.rank > Equivalence.PRECISION.rank:
        return f"a change of class {claimed} cannot be distinguished from equal results by comparing single runs"
    for trace, name in ((baseline, "untouched script"), (again, "untouched script, run again,"), (candidate, "script")):
        if trace.troubles:
            return f"the {name} could not be followed: {trace.troubles[0]}"
        if trace.reason == "script failed":
            return f"the {name} failed: {trace.error}"
        if not trace.complete:
            return f"the {name} ended after {len(trace.intervals)} steps, before they could be compared"
        cut_off = trace.reason != "script ended" and 2 * len(trace.intervals) < len(baseline.intervals)
        if cut_off or len(trace.intervals) < min(FEWEST_STEPS, len(baseline.intervals) or 1):
            return f"the {name} made {len(trace.intervals)} of {len(baseline.intervals)} steps in the time given"
    if any(not check.passed for check in invariants(baseline, again)):
        first = next(check.detail for check in invariants(baseline, again) if not check.passed)
        return f"the untouched script does other things each time: {first}"
    if (claimed is not Equivalence.BITWISE or not same) and (nudged is None or not nudged.replays):
        return "the script's own sensitivity could not be measured"
    if (claimed is not Equivalence.BITWISE or not same) and not candidate.replays:
        return "no captured step could be gone through again"
    return ""


def _checks(
    claimed: Equivalence,
    baseline: Trace,
    nudged: Trace | None,
    reference: Trace | None,
    candidate: Trace,
    *,
    same: bool,
) -> Iterator[Check]:
    bitwise = claimed is Equivalence.BITWISE
    fewer_bits = claimed.rank > Equivalence.ROUNDING.rank
    moved = None if bitwise else nudged
    yield from invariants(baseline, candidate, boundaries=bitwise, recording=fewer_bits, nudged=moved)
    if claimed is Equivalence.BITWISE and same:
        yield from bit_equality(baseline, candidate)
    else:
        assert nudged is not None
        yield from replay_gates(candidate, nudged, reference, LIMITS[claimed])
        yield from trajectory_gate(baseline, nudged, candidate, LIMITS[claimed])
    yield finite_check(baseline, candidate)
