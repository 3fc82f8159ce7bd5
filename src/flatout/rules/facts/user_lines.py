"""Which of the user's functions, and which line of it, a kind of time goes to: read from what the deep run sampled.

Sampling slows things down, so seconds of the deep run are only ever divided by other seconds of the deep run; the
share of the step is that quotient times the share of the phase in the timed run.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from flatout.rules.facts.source_code import ancestors, enclosing_function
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["COMPILED", "MIN_SAMPLES", "Hotspot", "costs", "function_key", "hottest", "outer_lines", "seconds"]

COMPUTING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
MIN_SAMPLES = 8  # fewer sightings than this name nothing: at 8 the share is still only known to about a third
AROUND_THE_LOOP = 0.8  # a line with this share of forward, of backward and of the optimizer below it calls the loop
COMPILED = "compiled code"
GENERATED = re.compile(
    r"^<eval_with_key>|[/\\](torchinductor_\w*|inductor)[/\\]|[/\\]c[a-z2-7]{51}\.py$|\.triton[/\\]cache"
)


@dataclass(frozen=True, slots=True)
class Hotspot:
    """The function that most of a kind of time goes to, by its hottest line."""

    place: Frame
    seconds: float  # in the whole function, as the deep run saw it
    samples: int
    share: float  # of all the time it was compared with, 0 to 1
    running: str = ""  # what was running below the line: "PIL resize", or "" for the user's own code


def costs(
    run: Run,
    phase: Phase,
    *,
    process: str = "main",
    stages: Sequence[str] | None = None,
    keep: Callable[[LineCost], bool] | None = None,
) -> tuple[LineCost, ...]:
    """Return what the deep run saw of one phase in the main process or the workers, narrowed by stage and `keep`."""
    seen = run.causes.lines if run.causes else ()
    return tuple(
        cost
        for cost in map(_written_by_hand, seen)
        if cost.phase == phase
        and cost.process == process
        and (stages is None or cost.stage in stages)
        and (keep is None or keep(cost))
    )


def _written_by_hand(cost: LineCost) -> LineCost:
    """Return the cost with the files that torch.compile generated taken for torch, not for the user's own code."""
    stack = tuple(frame for frame in cost.stack if not GENERATED.search(frame.file))
    if len(stack) == len(cost.stack):
        return cost
    return replace(cost, stack=stack, leaf=cost.leaf or "torch", leaf_function=COMPILED)


def outer_lines(run: Run) -> frozenset[Frame]:
    """Return the lines below which nearly all of a step runs: the call of a loop (`trainer.fit`), not part of it."""
    parts = [part for phase in COMPUTING if seconds(part := costs(run, phase)) > 0]
    if len(parts) < 2:  # one part of the step alone does not tell what lies around all of it
        return frozenset()
    return frozenset.intersection(*map(_around, parts))


def _around(lines: Sequence[LineCost]) -> frozenset[Frame]:
    inside: dict[Frame, float] = defaultdict(float)
    for cost in lines:
        for frame in set(cost.stack):
            inside[frame] += max(0.0, cost.seconds)
    whole = seconds(lines)
    return frozenset(frame for frame, spent in inside.items() if spent >= AROUND_THE_LOOP * whole)


def seconds(lines: Iterable[LineCost]) -> float:
    """Return the seconds of all `lines` together."""
    return sum(max(0.0, cost.seconds) for cost in lines)


def hottest(lines: Iterable[LineCost], among: Iterable[LineCost]) -> Hotspot | None:
    """Return the user function that most of `lines` goes to, its share taken of the time in `among`.

    A stack counts for its innermost user frame alone. None when no function was seen at least `MIN_SAMPLES` times.
    """
    functions: dict[tuple[str, str, int], list[LineCost]] = defaultdict(list)
    for cost in lines:
        if cost.stack:
            functions[function_key(cost.stack[0])].append(cost)
    seen_enough = [group for group in functions.values() if sum(cost.samples for cost in group) >= MIN_SAMPLES]
    whole = seconds(among)
    if not seen_enough or whole <= 0:
        return None
    group = max(seen_enough, key=seconds)
    return Hotspot(
        place=_place(group),
        seconds=seconds(group),
        samples=sum(cost.samples for cost in group),
        share=min(1.0, seconds(group) / whole),
        running=_running(group),
    )


def function_key(frame: Frame) -> tuple[str, str, int]:
    """Tell functions of the same name in one file apart by where they begin, as far as the source can be read.

    A lambda or a comprehension belongs to the function that it is written in.
    """
    named = (node for node in ancestors(frame) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    definition = next(named, None)
    return frame.file, frame.function.partition(".<locals>.<")[0], definition.lineno if definition else 0


def _place(group: Sequence[LineCost]) -> Frame:
    """Return the hottest line of one function that was seen often enough, or else the line where the function begins.

    Of few samples one may stand for a long pause, in which Python's garbage collector ran, say. A line with half of the
    function's samples is the hottest one, however few they are, down to four.
    """
    by_line: dict[Frame, list[LineCost]] = defaultdict(list)
    for cost in group:
        by_line[cost.stack[0]].append(cost)
    whole = sum(cost.samples for cost in group)
    times_seen = {place: sum(cost.samples for cost in some) for place, some in by_line.items()}
    known = [place for place, seen in times_seen.items() if seen >= min(MIN_SAMPLES, max(MIN_SAMPLES / 2, whole / 2))]
    if known:
        return max(known, key=lambda frame: seconds(by_line[frame]))
    place = max(by_line, key=lambda frame: seconds(by_line[frame]))
    definition = enclosing_function(place)
    return Frame(place.file, definition.lineno, place.function) if definition else place


def _running(group: Sequence[LineCost]) -> str:
    """Return what ran below the user's lines for most of the time, "" when that was the user's own code."""
    below: Counter[str] = Counter()
    for cost in group:
        below[f"{cost.leaf} {cost.leaf_function}".strip() if cost.leaf else ""] += cost.samples
    name, samples = below.most_common(1)[0]
    return name if samples * 2 >= sum(below.values()) else ""
