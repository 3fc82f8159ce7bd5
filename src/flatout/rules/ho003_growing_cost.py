"""A step costs more the longer the training runs.

## What it measures

Input, host, forward and sync time of the steady steps, in order (input without workers: waiting for these grows when
they fall behind). The median of the last third must be at least 1.5 times that of the first third, the median of the
middle third must lie between them, and the middle halves of the outer thirds must not overlap: over the whole
recording, or within at least 60% of its epochs. Only epochs of at least 24 steps count, and there must be two of them.
The time above the level at which the growth began must be at least 5% of the mean step. Without a loader that marks
epochs, they are inferred from the time itself, if it repeatedly falls from its highest to its lowest quarter at regular
intervals and rises from quarter to quarter in between. Where the recording is shorter than an epoch whose length is
known, the growth goes on in a straight line to its end, and the mean of that epoch counts. For host time, the bound is
the whole cost of the line, or the growth, whichever is larger.

## Why it matters

Something is kept and processed again in every step: a list of all predictions from which a metric is recomputed, a
string that is extended, a search in a growing history. A recording is short; over a whole epoch the cost keeps
growing.

## What to do

Keep a running sum instead of all values; compute the metric at the end of the epoch; use `deque(maxlen=...)`.
`flatout tune` tries a metric moved into the `if` that alone uses it, where it has no other effect.

## When it is wrong

Steps that get longer (batches sorted by length, a curriculum, one episode of a game a step) make all phases grow
together: the rule is quiet when forward and backward, these and the optimizer, or all phases (each time without the one
that grows) grow by at least 60% of what this phase does. It is also quiet where the host first runs ahead of a device
(in the first third, device time is more than 1.5 times the host's) and later waits for it, in whichever phase its queue
is full. The growth is measured; the reported line is only where that phase spends its time.
"""

from collections.abc import Sequence

from flatout.analysis.epochs import epoch_steps
from flatout.analysis.statistics import median
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.acting_lines import mostly_acts
from flatout.rules.facts.growth import Growth, factor_of, growth
from flatout.rules.facts.host_python import python_work, writing
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.user_lines import Hotspot, costs, hottest, outer_lines, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import LoaderFacts, Run, Step
from flatout.units import format_ms, format_ratio, format_share

MIN_SHARE = 0.05
MIN_SHARE_OF_PHASE = 0.3
TOGETHER = 0.6  # if the rest of the step grows by this part of the growth of a phase, the steps themselves get longer
AHEAD = 1.5  # if the first steps take the device this many times as long as the host, its queue is filling
PHASES = (Phase.INPUT, Phase.HOST, Phase.SYNC, Phase.FORWARD)
PASSES = (Phase.FORWARD, Phase.BACKWARD)
COMPUTING = (*PASSES, Phase.OPTIMIZER)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """HO003: a kind of time rises by half within the run or within each epoch."""
    phases = [phase for phase in PHASES if phase != Phase.INPUT or not mostly_acts(run)]  # episodes become longer
    rises = [(phase, rise) for phase in phases if (rise := _rise(run, breakdown, phase)) is not None]
    if not rises or breakdown.mean_ms <= 0:
        return None
    phase, rise = max(rises, key=lambda found: found[1].extra_ms)
    extra_ms, length = _over_the_epoch(run, rise)
    mean_ms = breakdown.mean_ms - rise.extra_ms + extra_ms
    share = min(1.0, extra_ms / mean_ms)
    if share < MIN_SHARE:
        return None
    spot = _hotspot(run, phase)
    at_most = max(share, _whole_of(run, breakdown, spot) if spot and phase == Phase.HOST else 0.0)
    when = "within each epoch" if rise.every_epoch else "over the recording"
    return Finding(
        code="HO003",
        name="growing-cost",
        phase=phase,
        share=share,
        max_speedup=speedup_without(at_most),
        bound_by="the whole line can go, not only what it has grown by",
        location=spot.place if spot else None,
        message=f"{phase.value} time grows {format_ratio(rise.factor)} {when}, from {format_ms(rise.first_ms)} to "
        f"{format_ms(rise.last_ms)} a step{f', mostly in {within(spot)}' if spot else ''}: "
        f"{_so_far(breakdown, rise, share, length)}. Keep a running value instead of all earlier values.",
        evidence=(
            Evidence("first third", rise.first_ms, "ms"),
            Evidence("last third", rise.last_ms, "ms"),
            Evidence("steps compared", rise.n, ""),
        ),
        fixes=("compiled-python", "kept-json"),
    )


def _over_the_epoch(run: Run, rise: Growth) -> tuple[float, int]:
    """Return the mean growth of a step of a whole epoch, in ms, and the steps of one: 0 where the recording saw it all.

    As it began, it goes on: on a straight line.
    """
    length = epoch_steps(run) or run.planned.pass_steps
    if rise.every_epoch or run.epoch_lengths or rise.n >= length or run.steps[-1].epoch > run.steps[0].epoch:
        return rise.extra_ms, 0
    return rise.extra_ms * length / rise.n, length


def _so_far(breakdown: Breakdown, rise: Growth, share: float, length: int) -> str:
    if not length:
        return f"{of_step(breakdown, rise.extra_ms)} is that growth"
    return (
        f"{of_step(breakdown, rise.extra_ms)} is that growth so far, and {format_share(share)} over the whole epoch of "
        f"{length:,} steps if it goes on"
    )


def _whole_of(run: Run, breakdown: Breakdown, spot: Hotspot) -> float:
    """Return the share of the step that a line and everything it calls cost, whether that grows or not."""
    seen, place = seconds(costs(run, Phase.HOST)), spot.place
    below = costs(run, Phase.HOST, keep=lambda cost: place in cost.stack)
    return breakdown.share(Phase.HOST) * seconds(below) / seen if seen > 0 else 0.0


def _rise(run: Run, breakdown: Breakdown, phase: Phase) -> Growth | None:
    """Return how a phase grows, where the rest of the step does not grow with it.

    Waiting for workers grows when they fall behind, which is no growing cost.
    """
    loader = training_loader(run)
    if phase == Phase.INPUT and loader is not None and loader.num_workers > 0:
        return None
    steps = run.steps[breakdown.warmup :]
    rise = growth(steps, phase)
    if rise is None or _ran_ahead(steps):
        return None
    alike = 1 + TOGETHER * (rise.factor - 1)
    rests = [[part for part in parts if part != phase] for parts in (PASSES, COMPUTING, STEP_PHASES)]
    together = any(factor_of(steps, rest, starts=rise.starts) >= alike for rest in rests)
    return None if together else rise


def _ran_ahead(steps: Sequence[Step]) -> bool:
    """Return whether the device had more to do in the first third than the host gave it time for."""
    first = [step for step in steps[: len(steps) // 3] if step.device_ns and step.wall_ns]
    return bool(first) and median([sum(step.device_ns) / step.wall_ns for step in first]) > AHEAD


def _hotspot(run: Run, phase: Phase) -> Hotspot | None:
    outer = outer_lines(run)
    every = costs(run, phase, keep=lambda cost: not outer.intersection(cost.stack[:1]))
    spot = hottest(python_work(run) + writing(run), among=every) if phase == Phase.HOST else None
    spot = spot or hottest(every, among=every)
    return spot if spot and spot.share >= MIN_SHARE_OF_PHASE else None


_LINES = (
    line(1.0, ("train.py", 58, "accuracy"), ("train.py", 40, "train"), phase=Phase.HOST, part="tail", leaf="numpy"),
)
_GROWS = steps_of([{Phase.HOST: 5 + 0.2 * i, Phase.FORWARD: 20} for i in range(60)])
_RESETS = steps_of(
    [{Phase.HOST: 5 + 0.2 * (i % 40), Phase.FORWARD: 20} for i in range(120)], epoch=[i // 40 for i in range(120)]
)
_SAMPLER = (line(1.0, ("train.py", 58, "Hard.__iter__"), ("train.py", 40, "train"), stage="sampler"),)
_CHOOSES = steps_of([{Phase.INPUT: 5 + 0.2 * i, Phase.FORWARD: 20} for i in range(60)])
_LITTLE = steps_of([{Phase.HOST: 1 + 0.04 * i, Phase.FORWARD: 50} for i in range(60)])
_LONGER_BATCHES = steps_of([{Phase.FORWARD: 5 + 0.2 * i, Phase.BACKWARD: 10 + 0.4 * i} for i in range(60)])
_LONGER_EPISODES = steps_of(
    [{Phase.HOST: 2 + 0.5 * i, Phase.FORWARD: 1 + 0.2 * i, Phase.BACKWARD: 2 + 0.4 * i} for i in range(60)]
)
_QUEUE_FILLS = steps_of(
    [{Phase.FORWARD: 0.5 if i < 25 else 40, Phase.BACKWARD: 0.7} for i in range(60)],
    device_ns=(20_000_000, 25_000_000, 100_000),
)

RULE = Rule(
    code="HO003",
    name="growing-cost",
    check=check,
    edits=(("collect",), ("detach",), ("seldom-work",), ("element-writes",), ("builtin-sum",), ("log-level",)),
    fires_on=(
        example(steps=_GROWS, lines=_LINES),
        example(steps=_RESETS, lines=_LINES),
        example(steps=_CHOOSES, lines=_SAMPLER),
    ),
    quiet_on=(
        example(steps=_CHOOSES, loaders=(LoaderFacts(is_training=True, num_workers=2),)),
        example(steps=_LITTLE, lines=_LINES),
        example(steps=_LONGER_BATCHES),
        example(steps=_LONGER_EPISODES, lines=_LINES),
        example(steps=_QUEUE_FILLS, lines=_LINES),
        example(step_ms=100, forward=40, lines=_LINES),
    ),
)
