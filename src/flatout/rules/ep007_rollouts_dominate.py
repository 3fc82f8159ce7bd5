"""A large part of the training collects the data that the next steps learn from.

## What it measures

The time between steps in which the model runs without gradients on inputs that it is trained on afterwards, as a share
of the recording without start-up. The deep run compares the inputs row by row: rows that were first seen without
gradients and then come back in training were collected; rows of a validation do not come back, and rows of the training
set were trained on before. It fires at 25%. Where each step collects its own data, it is the share of the step that was
seen in the loops in which the model acts; with more than 8 rows a call only where most of that is the script's own
Python.

## Why it matters

Reinforcement learning acts in its environment between updates, usually one observation at a time: each forward pass
takes a few dozen microseconds of computing and many times that in Python. The optimizer waits meanwhile.

## What to do

Step several environments at once and give the policy all of their observations in one call; build distributions once,
sample with plain tensor operations, and convert between NumPy and torch once for each step of all environments. Keep
`torch.no_grad()` around it. Environments that are slow themselves belong in processes of their own.

## When it is wrong

Where inputs are normalized by statistics that move (a running mean), rows do not come back with the same values; then
this time is shown as validation. The bound takes away all of the time; collecting the same data in larger batches
takes less time, not none.
"""

from collections.abc import Sequence
from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import goes_to, of_loop, of_step
from flatout.rules.facts.acting_lines import acting_lines
from flatout.rules.facts.gaps import num_pauses
from flatout.rules.facts.user_lines import Hotspot, costs, function_key, hottest, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, Frame, LineCost, Run
from flatout.units import format_share

MIN_SHARE = 0.25
WORTH_NAMING = 0.05  # of the time, for a second function
FEW = 8  # rows of a call
BY_VALUES = 0.5  # of the time, in the user's own Python


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP007: a quarter of the loop collects data for the next steps."""
    spent_s = min(breakdown.outside_s(Phase.ROLLOUT), breakdown.loop_s)
    share = breakdown.loop_share(spent_s)
    found = run.causes.collected if run.causes else None
    if found is None or share < MIN_SHARE:
        return _inside_steps(run, breakdown, found) if found is not None and not spent_s else None
    spots = _functions(costs(run, Phase.ROLLOUT))
    stretches = [stretch for stretch in run.outside if stretch.phase == Phase.ROLLOUT]
    inside = sum(step.forward_without_grad for step in run.steps)
    count = max(1, num_pauses(run, stretches) + (inside if inside * 2 <= len(run.steps) else 0))
    rows = found.rows / found.calls if found.calls else 0.0
    return Finding(
        code="EP007",
        name="rollouts-dominate",
        phase=Phase.ROLLOUT,
        share=share,
        max_speedup=speedup_without(share),
        location=spots[0].place if spots else None,
        message=f"{of_loop(breakdown, spent_s, count)} collects the data that the next steps learn from"
        f"{_most_of_it(spots)}. {_cure(rows)}.",
        evidence=(
            Evidence("one rollout", spent_s / count, "s"),
            Evidence("forward passes", found.calls, ""),
            Evidence("rows of a forward pass", rows, ""),
            Evidence("rows that came back in training", found.matched, ""),
        ),
        fixes=("compiled-python",),
    )


def _inside_steps(run: Run, breakdown: Breakdown, found: Collected) -> Finding | None:
    """Return the finding where steps themselves collect what they learn from.

    With many rows a call, that is as it should be, unless most of it is Python that works on single values.
    """
    acting, seen = acting_lines(run), costs(run, Phase.INPUT)
    spent = seconds(acting)
    share = breakdown.share(Phase.INPUT) * spent / seconds(seen) if spent else 0.0
    rows = found.rows / found.calls if found.calls else 0.0
    python = seconds(cost for cost in acting if not cost.leaf)
    if share < MIN_SHARE or (rows > FEW and python < BY_VALUES * spent):
        return None
    spots = _functions(acting)
    return Finding(
        code="EP007",
        name="rollouts-dominate",
        phase=Phase.ROLLOUT,
        share=share,
        max_speedup=speedup_without(share),
        location=spots[0].place if spots else None,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} collects the data that it learns from"
        f"{_most_of_it(spots)}. {_cure(rows)}.",
        evidence=(
            Evidence("forward passes without gradients", found.calls, ""),
            Evidence("rows of a forward pass", rows, ""),
            Evidence("rows that came back in training", found.matched, ""),
        ),
        fixes=(),
    )


def _functions(seen: Sequence[LineCost]) -> list[Hotspot]:
    """Return the two functions that take most of the rollouts, the second where it is worth naming."""
    spots: list[Hotspot] = []
    left = [cost for cost in seen if cost.stack]
    while len(spots) < 2 and (spot := hottest(left, among=seen)) is not None and spot.share >= WORTH_NAMING:
        spots.append(spot)
        left = [cost for cost in left if function_key(cost.stack[0]) != function_key(spot.inside)]
    return spots


def _most_of_it(spots: list[Hotspot]) -> str:
    told = [f"{goes_to(spot)} ({format_share(spot.share)})" for spot in spots]
    return f", most of it in {' and '.join(told)}" if told else ""


def _cure(rows: float) -> str:
    if not rows or rows > FEW:
        return "Keep Python and conversions out of that loop"
    given = "one row" if rows < 1.5 else f"{rows:.0f} rows"
    return f"Each forward pass is given {given}: step several environments at once, and give the model all of them"


_LINES = (
    line(1.0, ("ppo.py", 33, "act"), ("ppo.py", 48, "<module>"), phase=Phase.ROLLOUT, leaf="torch"),
    line(0.3, ("ppo.py", 27, "step_world"), ("ppo.py", 49, "<module>"), phase=Phase.ROLLOUT),
)
_ACTING = (
    line(1.4, ("world.py", 20, "view"), ("world.py", 40, "step"), ("a2c.py", 60, "train"), phase=Phase.INPUT),
    line(0.2, ("a2c.py", 71, "train"), phase=Phase.INPUT, leaf="torch"),
)
_IN_STEPS = Collected(
    calls=1600, rows=25600, checked=2000, matched=2000, steps=100, steps_with_calls=100,
    acting=(Frame("a2c.py", 58, "train"), Frame("a2c.py", 60, "train")), learning=(Frame("a2c.py", 70, "train"),),
)  # fmt: skip
_ONE_BY_ONE = Collected(calls=3000, rows=3000, checked=6000, matched=5900, steps=100, steps_with_calls=3)
_COLLECTING = Causes(collected=_ONE_BY_ONE, lines=_LINES, num_steps=100)

RULE = Rule(
    code="EP007",
    name="rollouts-dominate",
    check=check,
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.ROLLOUT: 4.0}, causes=_COLLECTING),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.ROLLOUT: 2.5}, causes=Causes(collected=_ONE_BY_ONE)),
        example(step_ms=50, input=30, forward=15, causes=Causes(collected=_IN_STEPS, lines=_ACTING, num_steps=100)),
    ),
    quiet_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.ROLLOUT: 1.0}, causes=_COLLECTING),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 4.0}),
        example(step_ms=50, n=100, forward=40),
        example(step_ms=50, input=9, forward=30, causes=Causes(collected=_IN_STEPS, lines=_ACTING, num_steps=100)),
        example(
            step_ms=50,
            input=30,
            forward=15,
            causes=Causes(collected=_IN_STEPS, lines=(replace(_ACTING[0], leaf="numpy"), _ACTING[1]), num_steps=100),
        ),
    ),
)
