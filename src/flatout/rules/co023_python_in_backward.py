"""The backward pass runs Python or NumPy, in an autograd Function of the script's own or in a hook.

## What it measures

Which functions of the script the backward pass calls (three steps of the deep run follow them), and how much of the
backward time the line sampler sees in them. It fires at 15% of the step where such a function leaves torch (`.numpy()`,
`.tolist()`, several `.item()`), loops over data, or calls 60 functions or more in one run.

## Why it matters

The backward pass runs once for each use of the function, in the training thread. A loop over rows there costs
microseconds a number; on a device each value that Python reads makes the host wait.

The bound is the whole time of the function; 65% of it where a loop may multiply matrices, which one larger product
does too; half where NumPy computes on whole arrays, which torch does as well, but not for nothing.

## What to do

Write the gradient with operations on whole tensors (`scatter_add_`, `index_add_`, `where`, `cumsum`). Where forward is
written in torch already, leave `backward` out: autograd derives it. `flatout tune` tries `compiled-python` for loops
over numbers and arrays.

## When it is wrong

A gradient that needs a solver or a library without torch has to leave torch. Then call it once for the whole batch.
Functions that run in threads of a device are not seen.
"""

from collections.abc import Sequence

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.backward_time import called_by_autograd, inside, share_of_lines
from flatout.rules.facts.user_lines import hottest, seconds
from flatout.rules.source.loops import data_loop, may_multiply
from flatout.schema.backward import BackwardFacts, BackwardPython
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LineCost, Run

MIN_SHARE = 0.15
MANY_CALLS = 60  # functions of C in one run: no gradient of whole tensors needs as many
MANY_ITEMS = 3
PRODUCTS, ARRAYS = 0.65, 0.5  # what goes of a loop with products, and of NumPy on whole arrays
NUMBERS = ("numpy", "tolist")


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO023: 15% of the step is Python in one function that the backward pass calls."""
    found = run.causes.backward if run.causes else None
    seen = [(each, inside(run, each.place)) for each in (found.python if found else ()) if not each.observes]
    slow = [(each, lines, how) for each, lines in seen if lines and (how := _how(each, lines))]
    if not slow:
        return None
    worst, lines, (what, gone) = max(slow, key=lambda each: share_of_lines(run, breakdown, each[1]))
    share = share_of_lines(run, breakdown, lines)
    own = [called_by_autograd(cost, [worst.place]) for cost in lines]
    spot = hottest(own, among=own)
    if share < MIN_SHARE or spot is None:
        return None
    whose = "a hook" if worst.kind == "hook" else "an autograd Function of the script's own"
    return Finding(
        code="CO023",
        name="python-in-backward",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share * gone),
        location=spot.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is the backward pass in {within(spot)}, {whose}, "
        f"which {what} ({spot.samples} stack samples). Compute the gradient with operations on whole tensors.",
        evidence=(
            Evidence("cost in each step", share * breakdown.mean_ms, "ms"),
            Evidence("runs a step", worst.runs, ""),
            Evidence("calls of functions a run", worst.calls, ""),
            Evidence("stack samples", spot.samples, ""),
        ),
        fixes=("compiled-python",),
    )


def _how(entry: BackwardPython, lines: Sequence[LineCost]) -> tuple[str, float] | None:
    """Return what such a function does that torch would not, and how much of its time goes without it."""
    looping = [(cost, frame) for cost in lines for frame in called_by_autograd(cost, [entry.place]).stack]
    loops = [(cost, frame, begins) for cost, frame in looping if (begins := data_loop(frame)) is not None]
    if 2 * sum(cost.seconds for cost in {id(cost): cost for cost, _, _ in loops}.values()) >= seconds(lines):
        begins = min(begins for _, _, begins in loops)
        multiplies = any(may_multiply(frame, line_number) for _, frame, line_number in loops)
        return f"loops over the data from line {begins} on", PRODUCTS if multiplies else 1.0
    number = sum(entry.leaves.get(name, 0.0) for name in NUMBERS)
    if entry.calls >= MANY_CALLS:
        return f"makes {entry.calls:.0f} calls in each run", 1.0
    if entry.leaves.get("tolist") or entry.leaves.get("item", 0.0) >= MANY_ITEMS:
        return "takes numbers out of tensors one by one", 1.0
    if number:
        pure = [cost for cost in lines if cost.leaf or cost.stack[0].function != entry.place.function]
        scalar = 2 * seconds(pure) >= seconds(lines)  # of many small functions
        return "computes in NumPy", 1.0 if scalar else ARRAYS
    return None


_BACKWARD = ("layers.py", 20, "Spike.backward")
_TRAIN = ("train.py", 44, "train")


def _seen(leaves: dict[str, float], spent: float = 1.0, **detail: object) -> Causes:
    """Return causes of 60 steps with backward passes of 2 s, of which the function takes `spent`."""
    entry = BackwardPython(place=Frame("layers.py", 14, "Spike.backward"), kind="function", runs=4, leaves=leaves)
    lines = (
        line(spent, _BACKWARD, _TRAIN, phase=Phase.BACKWARD, leaf="numpy", leaf_function="vectorize"),
        line(2 - spent, _TRAIN, phase=Phase.BACKWARD),
    )
    facts = BackwardFacts(python=(entry,))
    return Causes(lines=lines, num_steps=60, phases_s={Phase.BACKWARD: 2.0}, backward=facts)


RULE = Rule(
    code="CO023",
    name="python-in-backward",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, causes=_seen({"numpy": 1.0})),
        example(step_ms=100, forward=30, backward=60, causes=_seen({"tolist": 1.0})),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, causes=_seen({})),
        example(step_ms=100, forward=30, backward=60, causes=_seen({"item": 1.0})),
        example(step_ms=100, forward=30, backward=60, causes=_seen({"numpy": 1.0}, spent=0.3)),
        example(step_ms=100, forward=30, backward=60, causes=Causes(num_steps=60)),
    ),
)
