"""Sums over recorded passes: by the line that made the nodes, by the line that began the pass."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flatout.probe.backward.recorded_pass import Leaf, NodeRun, RecordedPass
from flatout.schema.backward import BackwardCall, BackwardLine, NeedlessPass
from flatout.schema.run import Frame

__all__ = ["calls", "lines", "lost_apart", "needless_passes", "whole"]

_MOST_LINES, _MOST_CALLS = 24, 8


def whole(passes: Sequence[RecordedPass], steps: int) -> float:
    """Return the seconds of all nodes, a step; those of `torch.autograd.grad` only where nothing else makes gradients.

    The account of time takes the same for backward passes.
    """
    adding = [each for each in passes if each.adds] or passes
    return sum(run.seconds for each in adding for run in each.nodes) / steps


def lines(passes: Iterable[RecordedPass], steps: int) -> tuple[BackwardLine, ...]:
    """Return the lines of the forward pass by kinds of nodes, the longest first."""
    sums: dict[tuple[Frame | None, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in passes:
        for run in each.nodes:
            if run.ran:
                sums[run.place, run.name][0] += run.seconds
                sums[run.place, run.name][1] += 1
    found = [
        BackwardLine(place=place, node=name, runs=runs / steps, seconds=seconds / steps)
        for (place, name), (seconds, runs) in sums.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.seconds)[:_MOST_LINES])


@dataclass(slots=True)
class _Call:
    passes: int = 0
    seconds: float = 0.0
    again_s: float = 0.0
    doubled_s: float = 0.0
    creates_graph: bool = False


def calls(passes: Sequence[RecordedPass], steps: int) -> tuple[BackwardCall, ...]:
    """Return the lines that begin passes, the longest first."""
    found: dict[Frame | None, _Call] = defaultdict(_Call)
    first: dict[tuple[int, int], int] = {}  # which ran a node of a step
    creating = {each.place for each in passes if each.creates_graph}
    begun = 0  # passes before those whose gradients are only added up so far
    for number, each in enumerate(passes):
        call = found[each.place]
        call.passes += 1
        call.creates_graph = call.creates_graph or each.creates_graph
        begun = number if each.changed or not each.adds or each.creates_graph else begun
        again = [0.0, 0.0]  # of leaves, which all graphs have, and of others
        for run in (run for run in each.nodes if run.ran):
            call.seconds += run.seconds
            at = first.get((each.step, run.identity), number)
            at = first[each.step, run.identity] = at if at >= begun or passes[at].creates_graph else number
            if at < number and passes[at].creates_graph:
                found[passes[at].place].doubled_s += run.seconds
            elif begun <= at < number:
                again[run.leaf is None] += run.seconds
            elif run.place in creating and run.place != each.place:
                found[run.place].doubled_s += run.seconds
        call.again_s += sum(again) if again[1] else 0.0
    totals = [
        BackwardCall(
            place=place,
            passes=call.passes / steps,
            seconds=call.seconds / steps,
            again_s=call.again_s / steps,
            creates_graph=call.creates_graph,
            doubled_s=call.doubled_s / steps,
        )
        for place, call in found.items()
    ]
    return tuple(sorted(totals, key=lambda one: -one.seconds)[:_MOST_CALLS])


def needless_passes(
    passes: Iterable[RecordedPass], steps: int, needless: Callable[[RecordedPass], set[object]]
) -> tuple[NeedlessPass, ...]:
    """Return the lines whose passes make gradients that are thrown away, the longest first."""
    leaves: dict[Frame | None, dict[object, Leaf]] = defaultdict(dict)
    seconds: dict[Frame | None, float] = defaultdict(float)
    apart: set[Frame | None] = set()
    passes = tuple(passes)
    asked = {leaf.identity for each in passes if not each.adds for leaf in each.leaves() if not leaf.is_parameter}
    for each in passes:
        lost = needless(each)
        if lost:
            needed = _needed(each.nodes, lost)
            leaves[each.place] |= {leaf.identity: leaf for leaf in each.leaves() if leaf.identity in lost}
            seconds[each.place] += sum(run.seconds for run, is_so in zip(each.nodes, needed, strict=True) if not is_so)
            apart |= {each.place} if lost_apart(each, lost) else set()
    found = [
        NeedlessPass(
            place=place,
            parameters=sum(leaf.is_parameter for leaf in known.values()),
            inputs=sum(not leaf.is_parameter for leaf in known.values()),
            num_bytes=sum(leaf.num_bytes for leaf in known.values()),
            seconds=seconds[place] / steps,
            on_the_way=place not in apart,
            asked_for=any(identity in asked for identity in known),
        )
        for place, known in leaves.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.seconds))


def lost_apart(recorded: RecordedPass, lost: set[object]) -> set[object]:
    """Return those of the leaves in `lost` that are inputs, or stand in a part of the graph of nothing else.

    The others are weights of layers that a gradient has to go through: only a part of a node's work is needless there.
    """
    nodes = recorded.nodes
    needed = _needed(nodes, lost)
    leading: dict[int, list[int]] = defaultdict(list)
    for place, run in enumerate(nodes):
        for following in run.following:
            leading[following].append(place)
    found: set[object] = set()
    for place, run in enumerate(nodes):
        if run.leaf is None or run.leaf.identity not in lost:
            continue
        waiting, goes_through = list(leading[place]), False
        while waiting and not goes_through:
            before = waiting.pop()
            goes_through = needed[before]
            waiting.extend(leading[before] if len(nodes[before].following) == 1 else ())
        if not goes_through or not run.leaf.is_parameter:
            found.add(run.leaf.identity)
    return found


def _needed(nodes: Sequence[NodeRun], lost: set[object]) -> list[bool]:
    """Return of each node whether it leads to a leaf whose identity is not in `lost`."""
    needed: dict[int, bool] = {}
    waiting = [(place, False) for place in reversed(range(len(nodes)))]
    while waiting:
        place, seen = waiting.pop()
        node = nodes[place]
        if seen:
            needed[place] = any(needed[one] for one in node.following)
        elif place not in needed:
            needed[place] = not node.following and (node.leaf is None or node.leaf.identity not in lost)
            if node.following:
                waiting.append((place, True))
                waiting.extend((one, False) for one in node.following if one not in needed)
    return [needed[place] for place in range(len(nodes))]
