"""A function whose time is spread over many parts, none of which is worth naming alone."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flatout.rules.facts.user_lines import COMPUTING, MIN_SAMPLES, Hotspot, costs, function_key, seconds
from flatout.schema.finding import Evidence
from flatout.schema.run import Frame, LineCost, Run
from flatout.units import format_share

__all__ = ["Chain", "Part", "chain_of", "listed", "named_parts", "spread_over"]

MIN_PARTS = 4  # of at least MIN_PART each
MIN_PART = 0.04  # of the chain
MAX_PART = 0.45  # of the chain: a dearer part is the function to name
NEARLY = 0.85  # of the largest chain: a function further in that has this much of it is the one to name
ONE_LINE = 0.9  # of the chain below one line of it: a loop over the parts
NAMED, LISTED = 3, 6  # parts in the message, and in the evidence

_Function = tuple[str, str, int]
_Part = tuple[_Function, int]  # a function that is called, and 0; or the function itself, and one of its lines


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a chain: a function that it calls, or a line of its own."""

    name: str
    place: Frame  # the chain's line that runs it, or its own line where one line of the chain runs nearly all
    share: float  # of the chain


@dataclass(frozen=True, slots=True)
class Chain:
    """A function that runs many parts, each of which takes a small part of a kind of time."""

    spot: Hotspot  # the whole function, at the line of its dearest part
    parts: tuple[Part, ...]  # the dearest first


class _Spent:
    """The time below one function, by its parts."""

    def __init__(self) -> None:
        self.whole: list[LineCost] = []
        self.parts: dict[_Part, list[tuple[LineCost, Frame]]] = defaultdict(list)  # with the function's own line

    def add(self, cost: LineCost, own: Frame, part: _Part) -> None:
        """Take a cost that was seen below the line `own`, in `part`."""
        self.whole.append(cost)
        self.parts[part].append((cost, own))


def chain_of(run: Run, lines: Iterable[LineCost], among: Iterable[LineCost]) -> Chain | None:
    """Return the innermost function that spreads most of the time of `lines` over many parts.

    None where one part dominates every function, or where a function has too few parts: then the hottest function is
    the one to name. Functions that run the training are none: what they call has nothing in common.
    """
    key_of = functools.cache(function_key)
    training = {key_of(frame) for phase in COMPUTING for cost in costs(run, phase) for frame in cost.stack[1:]}
    functions: dict[_Function, _Spent] = defaultdict(_Spent)
    for cost in lines:
        seen = set(training)
        for depth in range(len(cost.stack)):  # of a function that calls itself, the innermost call
            own = cost.stack[depth]
            if key_of(own) not in seen:
                seen.add(key_of(own))
                part = (key_of(cost.stack[depth - 1]), 0) if depth else (key_of(own), own.line)
                functions[key_of(own)].add(cost, own, part)
    whole = seconds(among)
    chains = [found for spent in functions.values() if (found := _chain(spent, whole)) is not None]
    if not chains:
        return None
    largest = max(chain.spot.seconds for chain in chains)
    return min(
        (chain for chain in chains if chain.spot.seconds >= NEARLY * largest), key=lambda chain: chain.spot.seconds
    )


def spread_over(run: Run, spot: Hotspot | None, lines: Sequence[LineCost], among: Sequence[LineCost]) -> Chain | None:
    """Return the chain that takes several times as long as the hottest function `spot`, or None."""
    chain = chain_of(run, lines, among)
    return chain if chain is not None and (spot is None or spot.seconds <= MAX_PART * chain.spot.seconds) else None


def named_parts(chain: Chain) -> str:
    """Return `9 parts, none of which dominates (shift 14%, noise 12%, gamma 11%, ...)`."""
    named = ", ".join(f"{part.name} {format_share(part.share)}" for part in chain.parts[:NAMED])
    return f"{len(chain.parts)} parts, none of which dominates ({named}, ...)"


def listed(chain: Chain, whole_ms: float) -> tuple[Evidence, ...]:
    """Return the parts as evidence, with their milliseconds in a step; `whole_ms` are the chain's."""
    return tuple(
        Evidence(f"{part.name} (line {part.place.line})", part.share * whole_ms, "ms") for part in chain.parts[:LISTED]
    )


def _chain(spent: _Spent, among_s: float) -> Chain | None:
    """Return the chain that a function is, None where it is none."""
    whole, samples = seconds(spent.whole), sum(cost.samples for cost in spent.whole)
    if whole <= 0 or among_s <= 0 or samples < MIN_PARTS * MIN_SAMPLES:
        return None
    times = {part: seconds(cost for cost, _ in costs) for part, costs in spent.parts.items()}
    if max(times.values()) > MAX_PART * whole or sum(each >= MIN_PART * whole for each in times.values()) < MIN_PARTS:
        return None
    one_line = max(_by_line(spent).values()) >= ONE_LINE * whole
    parts = tuple(
        Part(_name(part), _place(part, spent.parts[part], inside=one_line), times[part] / whole)
        for part in sorted(times, key=lambda part: -times[part])
    )
    share = min(1.0, whole / among_s)
    return Chain(spot=Hotspot(place=parts[0].place, seconds=whole, samples=samples, share=share), parts=parts)


def _by_line(spent: _Spent) -> dict[int, float]:
    """Return the seconds below each line of a function."""
    times: dict[int, float] = defaultdict(float)
    for seen in spent.parts.values():
        for cost, own in seen:
            times[own.line] += cost.seconds
    return times


def _name(part: _Part) -> str:
    (_, function, _), line = part
    return f"line {line}" if line else function.rpartition("<locals>.")[2]


def _place(part: _Part, seen: Sequence[tuple[LineCost, Frame]], *, inside: bool) -> Frame:
    """Return the function's line that runs a part most of the time, or the part's own hottest line where `inside`."""
    times: dict[Frame, float] = defaultdict(float)
    for cost, own in seen:
        at = cost.stack.index(own)
        times[cost.stack[at - 1] if inside and at else own] += cost.seconds
    return max(times, key=lambda frame: times[frame])
