"""A call computes directly what another form of it computes in less time.

## What it measures

In one step of the deep run, all calls of five kinds, outside of backward passes: convolutions with long kernels (from
96 taps, or 11 x 11), distances from the differences of all pairs of rows (subtracted as one large tensor, squared or
made positive, and added up), enlargements that a convolution of single points follows (1 x 1) with fewer channels
out than in, products with a matrix that stays the same and is zero in 90% of its places, and products of three or more
matrices, from the left, that take fewer multiplications from the right. Afterwards the longest call of each line is
timed again on other numbers of the same shapes, as it is written and in the other form, in turn; with the backward pass
where gradients are asked for. It fires where the other form takes at most two thirds of the time and 5% of the step go.
On the CPU only, where nothing is compiled.

## Why it matters

A convolution of `n` numbers with `k` taps takes `n * k` products; by Fourier transforms it takes some `n * log n`.
Differences of all pairs are as many numbers as rows times columns times width, each of which is written, read, squared
and kept for the backward pass; squared lengths and one product of matrices give the same distances. Mixing channels and
enlarging change places: done first, the mixing has fewer points and the enlargement fewer channels. A graph's
adjacency as a full matrix is multiplied zero by zero; in compressed rows only its edges are. Its powers are as wide as
the graph: `a @ (a @ (a @ h))` is as wide as `h` all the way.

## What to do

Write it as the message says; `flatout tune` tries that for distances, and for products of one expression or loop.
Where only indices are wanted of distances (nearest neighbours), compute them under `torch.no_grad()`: gradients are
recorded in vain.

## When it is wrong

The other form is rounded otherwise. Products cancel where rows are close to each other: `clamp_min(0)` before a root.
Transforms in float32 are exact to some 1e-6 of the largest value, not of each. The timings are of this machine and
these shapes; a device may be quick at the direct form.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.user_lines import phase_of
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run, SlowForm
from flatout.units import format_ms

MIN_SHARE = 0.05
MIN_FASTER = 1.5
MIN_PASSES = 3
OTHER_FORM = "the other form takes its time, too"


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO033: another form of a call saves a twentieth of the step."""
    causes = run.causes or Causes()
    step_s = sum(causes.phases_s.values()) / max(1, causes.num_steps)
    slow = [one for one in causes.slow_forms if _is_slow(one)]
    if not slow or step_s <= 0:
        return None
    worst = max(slow, key=_saved_s)
    there = [one for one in slow if one.place == worst.place]
    phase = phase_of(run, worst.place)
    most = breakdown.share(phase) + breakdown.share(Phase.BACKWARD) * any(one.with_backward for one in there)
    whole_s = sum(one.seconds * one.alone_s / one.forward_s for one in there)
    share = min(most, whole_s / step_s)
    saved = share * sum(map(_saved_s, there)) / whole_s
    if saved < MIN_SHARE:
        return None
    both = " and its backward pass" if worst.with_backward else ""
    return Finding(
        code="CO033",
        name="slow-form",
        phase=phase,
        share=share,
        max_speedup=speedup_without(saved),
        bound_by=OTHER_FORM,
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is {worst.operation}{both}, in {at(worst.place)}: "
        f"timed alone it takes {format_ms(worst.alone_s * 1e3)}, and {worst.instead} "
        f"{format_ms(worst.other_s * 1e3)} (n={worst.n}){_with_care(worst)}.",
        evidence=(
            Evidence("as it is written, timed alone", worst.alone_s * 1e3, "ms"),
            Evidence("the other form, timed alone", worst.other_s * 1e3, "ms"),
            Evidence("such calls in a step", worst.calls, ""),
        ),
        fixes=(),
        arguments=_arguments(worst),
    )


def _arguments(one: SlowForm) -> tuple[Argument, ...]:
    """Return what was measured of the longest of the calls."""
    return (
        Argument("operation", one.operation),
        Argument("instead", one.instead.strip("`")),
        Argument("calls", one.calls),
        *(Argument(f"shape_{number}", shape) for number, shape in enumerate(one.shapes, 1)),
        *((Argument("dtype", one.dtype),) if one.dtype else ()),
    )


def _is_slow(one: SlowForm) -> bool:
    measured = one.n >= MIN_PASSES and one.forward_s > 0 and one.seconds > 0
    return measured and one.alone_s >= MIN_FASTER * one.other_s > 0


def _saved_s(one: SlowForm) -> float:
    """Return what the other form saves in a step: what calls took in it, scaled by the timings."""
    return one.seconds / one.forward_s * (one.alone_s - one.other_s)


def _with_care(one: SlowForm) -> str:
    if one.picked:
        return " under `torch.no_grad()`: only indices come out of it"
    return " (rounded differently in the last bits)"


_PAIRS = SlowForm(
    place=Frame("clouds.py", 40, "nearest"),
    operation="all 256 x 256 differences of 32 numbers",
    instead="`torch.cdist(x, y).square()`",
    calls=3,
    seconds=0.004,
    n=7,
    forward_s=0.002,
    alone_s=0.006,
    other_s=0.001,
    with_backward=True,
)
_LONG = SlowForm(
    place=Frame("rooms.py", 51, "Room.forward"),
    operation="conv1d with a kernel of 4800",
    instead="`torch.fft.irfft(...)`",
    calls=1,
    seconds=0.008,
    n=7,
    forward_s=0.008,
    alone_s=0.008,
    other_s=0.0004,
)


def _with(*found: SlowForm) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, slow_forms=found)


RULE = Rule(
    code="CO033",
    name="slow-form",
    check=check,
    edits=(("distances",), ("product-order",)),
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_PAIRS)),
        example(step_ms=20, forward=10, backward=9, causes=_with(_LONG)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_LONG, other_s=0.007), _PAIRS)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_PAIRS, other_s=0.005))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_LONG, seconds=0.0005))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_LONG, n=0, forward_s=0.0, alone_s=0.0))),
        example(step_ms=20, forward=10, backward=9, causes=Causes(slow_forms=(_LONG,))),
    ),
)
