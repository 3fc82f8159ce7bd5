"""The step recomputes something that has not changed since the step before.

## What it measures

In the deep run, two steps, operation by operation, but for backward passes, optimizers and loaders: the model, the
loss, and functions and modules without parameters. An operation of the second counts if the first had it with the same
inputs, and if it draws no random numbers. Tensors are the same if they are the same objects, not written to in between,
or results of such operations. Inside modules, their share of all operations is multiplied by the share of forward in
the step (at most three times as much as was watched); outside, their time is compared with the step. It fires at 15%: a
single step varies, for one script between 14% on one day and 22% on another. On the CPU only.

Functions of the script's that take a part of the step are compared in three steps, too, by what they are given and by
the contents of what they return: tables that plain Python makes are found so, at the line of the call. They fire at 5%
of the step by stack samples. Nothing is compared where functions are compiled.

## Why it matters

Masks, tables of positions, windows, covariances of a fixed grid, edges of a graph that never changes: when they are
made where they are used, they are made in every layer of every step. A graph attention network (Diego999/pyGAT,
`--sparse`) spent half of its step looking for the edges of one adjacency matrix; found once, and with the same care in
its backward pass, a step took 0.33 of the time (`benchmarks/history/outside.jsonl`).

## What to do

Compute it once, where the model or the data are made, and keep it: `self.register_buffer("mask", ...)`, an attribute,
or an argument instead of what it is computed from. `flatout tune` tries `kept-calls`, which keeps what such a function
returns without a change of your code.

## When it is wrong

Where keeping it takes more memory than there is (one large mask a layer). Where it depends on a shape that changes from
time to time, keep one for each shape. Where a function does something besides that the training needs.
"""

import re
from dataclasses import replace

from flatout.rules.core.bounds import share_of_forward, share_outside, speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.user_lines import MIN_SAMPLES, phase_of, share_below
from flatout.rules.source.source_code import statement
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LoopInvariant, Run, UnchangingCall

MIN_SHARE = 0.15
MIN_CALLS = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO019: operations on what has not changed take 15% of the step, or calls that return the same 5%."""
    found = [one for one in (_operations(run, breakdown), _calls(run, breakdown)) if one is not None]
    return max(found, key=lambda one: one.share, default=None)


def _operations(run: Run, breakdown: Breakdown) -> Finding | None:
    """Return the finding about operations."""
    causes = run.causes or Causes()
    found = causes.unchanging
    placed = [one for one in found if one.place is not None]
    share = _share(breakdown, causes, found)
    if not placed or share < MIN_SHARE:
        return None
    worst = max(placed, key=lambda one: one.seconds)
    of_all = sum(one.seconds for one in found) / max(1e-9, sum(_wholes(found).values()))
    return _finding(
        run,
        worst.place,
        share,
        f"{of_step(breakdown, share * breakdown.mean_ms)} recomputes what the step before computed from the same "
        f"values, most of it in {at(worst.place)} ({worst.operation}). Compute it once and keep it.",
        Evidence("such operations, of all outside the backward pass", min(1.0, of_all), ""),
        Evidence("at this line, in a step", worst.seconds * 1e3, "ms"),
    )


def _calls(run: Run, breakdown: Breakdown) -> Finding | None:
    """Return the finding about the calls of one function from one line: that which takes most."""
    some = [
        (one, *share_below(run, breakdown, one.place, one.function, and_line=_is_converted(one)))
        for one in (run.causes.unchanging_calls if run.causes else ())
    ]
    seen = [each for each in some if each[1] >= MIN_CALLS and each[2] >= MIN_SAMPLES]
    if not seen:
        return None
    worst, share, samples = max(seen, key=lambda each: each[1])
    times = "once" if worst.calls == 1 else f"{worst.calls} times"
    return _finding(
        run,
        worst.place,
        share,
        f"{of_step(breakdown, share * breakdown.mean_ms)} goes to `{worst.function}`, called in {at(worst.place)}: "
        f"{times} a step it is given the same and returns the same {worst.numbers} numbers (in each of {worst.steps} "
        "steps). Make them once and keep them: an attribute, or `self.register_buffer(...)`.",
        Evidence("stack samples", samples, ""),
        Evidence("calls in a step", worst.calls, ""),
        fixes=("kept-calls",),
    )


def _is_converted(call: UnchangingCall) -> bool:
    """Return whether the line of a call makes a tensor or an array of what it returns, and of nothing else."""
    name = re.escape(call.function.rpartition(".")[2])
    return re.search(rf"(tensor|array|from_numpy)\(([\w.]+\.)?{name}\(", statement(call.place) or "") is not None


def _finding(
    run: Run, place: Frame | None, share: float, message: str, *evidence: Evidence, fixes: tuple[str, ...] = ()
) -> Finding:
    return Finding(
        code="CO019",
        name="unchanging-work",
        phase=phase_of(run, place),
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=message,
        evidence=evidence,
        fixes=fixes,
    )


def _share(breakdown: Breakdown, causes: Causes, found: tuple[LoopInvariant, ...]) -> float:
    """Return the share of the step that such operations take: inside modules by the forward pass, outside by time."""
    wholes = _wholes(found)
    inside_s, outside_s = (sum(one.seconds for one in found if one.outside is outside) for outside in (False, True))
    share = 0.0
    if inside_s > 0 and False in wholes:
        share += share_of_forward(breakdown, causes, wholes[False], inside_s / wholes[False])
    return min(1.0, share + share_outside(breakdown, causes, outside_s))


def _wholes(found: tuple[LoopInvariant, ...]) -> dict[bool, float]:
    """Return what all operations took, inside of modules and outside."""
    return {one.outside: one.whole_s for one in found if one.whole_s > 0}


_AT = Frame("layers.py", 110, "forward")
_EDGES = LoopInvariant(place=_AT, operation="nonzero", seconds=0.006, whole_s=0.008)
_REST = LoopInvariant(place=None, operation="t", seconds=0.0002, whole_s=0.008)
_PRIOR = LoopInvariant(place=_AT, operation="linalg_inv_ex", seconds=0.006, whole_s=0.007, outside=True)
_SMALL = LoopInvariant(place=_AT, operation="triu", seconds=0.0004, whole_s=0.0005)


_TABLE = UnchangingCall(place=Frame("windows.py", 77, "Attention.bias"), function="table", calls=4, steps=3, numbers=64)
_OTHER = ("model.py", 9, "Net.forward")


def _made(seconds: float, *calls: UnchangingCall) -> Causes:
    """Return causes of a forward pass of one second, of which calls of `table` from its line take `seconds`."""
    outer = (_TABLE.place.file, _TABLE.place.line, _TABLE.place.function)
    lines = (
        line(seconds, ("windows.py", 12, "table"), outer, _OTHER, phase=Phase.FORWARD),
        line(1 - seconds, _OTHER, phase=Phase.FORWARD),
    )
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, lines=lines, unchanging_calls=calls)


def _with(*found: LoopInvariant) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, unchanging=found)


RULE = Rule(
    code="CO019",
    name="unchanging-work",
    check=check,
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_EDGES)),
        example(step_ms=20, forward=10, backward=9, causes=_with(_REST, _EDGES)),
        example(step_ms=20, forward=10, backward=9, causes=_with(_PRIOR)),
        example(step_ms=20, forward=10, backward=9, causes=_made(0.3, _TABLE)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(_REST)),
        example(step_ms=20, forward=2, backward=17, causes=_with(_EDGES)),
        example(
            step_ms=20, forward=10, backward=9, causes=_with(LoopInvariant(place=_AT, seconds=0.0008, whole_s=0.008))
        ),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_PRIOR, seconds=0.002))),
        example(step_ms=20, forward=10, backward=9, causes=_with(_SMALL)),  # a small part of what the step calls
        example(step_ms=20, forward=10, backward=9, causes=Causes(unchanging=(_EDGES,))),
        example(step_ms=20, forward=10, backward=9, causes=_made(0.3)),
        example(step_ms=20, forward=10, backward=9, causes=_made(0.08, _TABLE)),
        example(step_ms=20, forward=10, backward=9, causes=_made(0.3, replace(_TABLE, function="other"))),
    ),
)
