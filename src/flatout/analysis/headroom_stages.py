"""From ceilings to stages: what each part of making a batch takes of a step, by what holding behind it takes away.

Ceilings are compared by their ratios to the script as it is, since each was measured in turns with it; their times
were taken one after the other, on a machine that drifts.

Intervals of blocks tell how well one process knows itself. Against the same scripts changed by hand the truth lay in 11
of 60 of them (benchmarks/history/headroom.jsonl): doing without a part of the work in one process is
not quite what another process is without it. So what is said of a ceiling has `HOLDING` in its interval, too (54 of
those 60, from which it was taken); what is decided by it has not.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_PINNED, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER, Ceiling

__all__ = ["HOLDING", "Gain", "Stair", "gain_between", "left_between", "stairs"]

HOLDING = 0.02  # of the step, half a width: in nine of ten of those 60 no more lay between the two

_ORDER = (HELD_RAW, HELD_FIXED, HELD_SAMPLES, HELD_INPUT, HELD_PINNED, HELD_TRANSFER)
_STAGES = {  # what lies between two places; from the start where the first is ""
    ("", HELD_RAW): "reading",
    ("", HELD_FIXED): "reading, fixed transforms",
    (HELD_RAW, HELD_FIXED): "fixed transforms",
    ("", HELD_SAMPLES): "making samples",
    (HELD_RAW, HELD_SAMPLES): "transforms",
    (HELD_FIXED, HELD_SAMPLES): "random transforms",
    ("", HELD_INPUT): "input",
    (HELD_RAW, HELD_INPUT): "transforms, collate",
    (HELD_SAMPLES, HELD_INPUT): "collate and sampler",
    ("", HELD_TRANSFER): "input and copies",
    (HELD_INPUT, HELD_PINNED): "pageable memory",
    (HELD_INPUT, HELD_TRANSFER): "copies",
    (HELD_PINNED, HELD_TRANSFER): "copies",
}
_REST = "the rest of the input"
_OF_WORKERS = {(place, HELD_INPUT): _REST for place in (HELD_RAW, HELD_SAMPLES)}  # with the hand-over of batches
_SURE = 0.1  # half the width of an interval, below which a ceiling is the better figure


@dataclass(frozen=True, slots=True)
class Stair:
    """One place at which the input was held, and what has gone since the place before."""

    ceiling: Ceiling
    stage: str
    share: float  # of the step as it is
    low: float  # of its 95 % interval
    high: float


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster steps are without a part of them."""

    speedup: float
    low: float  # of its 95 % interval
    high: float

    @property
    def sure(self) -> bool:
        """Return whether it is known well enough to be the better figure than what follows from the account."""
        return 0 < self.low <= self.high and (self.high - self.low) / 2 < _SURE * self.speedup


def stairs(headroom: Iterable[Ceiling], *, workers: bool = False) -> tuple[Stair, ...]:
    """Return the places at which the input was held, in the order in which a batch comes by them.

    With `workers` batches are made beside the training: a stair is what goes with its stage once all before is gone.
    """
    found, before = [], ""
    stages = _STAGES | _OF_WORKERS if workers else _STAGES
    known = {each.ceiling: each for each in headroom}
    for name in (name for name in _ORDER if name in known):
        share, width = _gone(known.get(before), known[name])
        width = math.hypot(width, HOLDING)
        stage = stages.get((before, name), _REST)
        found.append(Stair(known[name], stage, max(0.0, share), max(0.0, share - width), max(0.0, share + width)))
        before = name
    return tuple(found)


def left_between(ceiling: Ceiling) -> tuple[float, float]:
    """Return between what the rest of the step lies there, as shares of the step."""
    left, _ = _rest(ceiling)
    known = 0 < ceiling.low <= ceiling.high
    least, most = (1 / ceiling.high, 1 / ceiling.low) if known else (left, left)
    low, high = min(least, left), max(most, left)
    return max(0.0, left - math.hypot(left - low, HOLDING)), left + math.hypot(high - left, HOLDING)


def gain_between(headroom: Iterable[Ceiling], since: str, until: str) -> Gain | None:
    """Return what it gives to do without the work between two places; from the start where `since` is "".

    None where one of them was not measured, and where they contradict each other: holding more cannot give less, so
    their intervals do not know what lies between them (pauses of the garbage collector, say).
    """
    known = {each.ceiling: each for each in headroom}
    if until not in known or (since and since not in known):
        return None
    if not since:
        whole = known[until]
        return Gain(whole.speedup, whole.low or whole.speedup, whole.high or whole.speedup)
    share, width = _gone(known[since], known[until])
    if share < -HOLDING:
        return None
    return Gain(_without(share), _without(share - width), _without(share + width))


def _gone(before: Ceiling | None, after: Ceiling) -> tuple[float, float]:
    """Return the share of the step between two places, and half the width of its interval."""
    (left, one), (rest, other) = _rest(before), _rest(after)
    return left - rest, math.hypot(one, other)


def _rest(ceiling: Ceiling | None) -> tuple[float, float]:
    """Return what is left of the step, and half the width of its interval."""
    if ceiling is None or not ceiling.speedup > 0:
        return 1.0, 0.0
    known = 0 < ceiling.low <= ceiling.high < math.inf
    return 1 / ceiling.speedup, (1 / ceiling.low - 1 / ceiling.high) / 2 if known else 0.0


def _without(share: float) -> float:
    return 1 / (1 - min(0.999, max(0.0, share)))
