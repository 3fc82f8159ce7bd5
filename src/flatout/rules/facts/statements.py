"""What goes when one statement of the training loop goes: what it costs on the host, after all that is learned."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.rules.facts.loops import statement_apart
from flatout.rules.facts.manual_loading import in_host_time
from flatout.rules.facts.output_calls import writes_output
from flatout.rules.facts.source_code import statement
from flatout.rules.facts.user_lines import Hotspot, costs, function_key, seconds
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["Called", "of_one_statement"]

MOSTLY = 0.8
SELDOM = 0.02  # of a phase: a sample is sometimes told the line after the one that ran
LEARNING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_Function = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Called:
    """A statement of the training loop: the line that was seen of it, and its seconds on the host."""

    place: Frame
    seconds: float


class _Learning:
    """The lines below which forward, backward and optimizer run."""

    def __init__(self, run: Run) -> None:
        seen = [(phase, frame) for phase in LEARNING for frame in _often(costs(run, phase))]
        self.frames = {frame for _, frame in seen}
        self.classes = {_class_of(frame) for frame in self.frames}
        self._lines: dict[_Function, set[int]] = defaultdict(set)
        self._last: dict[_Function, int] = {}
        for phase, frame in seen:
            self._lines[function_key(frame)].add(frame.line)
            if phase is Phase.BACKWARD or (phase is Phase.OPTIMIZER and "step(" in (statement(frame) or "step(")):
                key = function_key(frame)
                self._last[key] = max(frame.line, self._last.get(key, 0))

    def called_from(self, stack: Sequence[Frame]) -> Frame | None:
        """Return the outermost line that learning does not run below."""
        return next((frame for frame in reversed(stack) if frame not in self.frames), None)

    def is_over(self, place: Frame) -> bool:
        """Return whether a line comes after the last backward pass and step of its function, which has some."""
        return place.line > self._last.get(function_key(place), place.line)

    def statement(self, place: Frame) -> tuple[_Function, int]:
        """Return the largest statement around a line that nothing is learned in."""
        key = function_key(place)
        node = statement_apart(place, self._lines[key])
        return key, place.line if node is None else node.lineno


def of_one_statement(run: Run, spot: Hotspot) -> Called | None:
    """Return the statement that calls a function after all that is learned in the step, and what it costs on the host.

    The other methods of the function's class go with it where the class takes no part in the learning; what writes, and
    what makes batches, is left out. None where the function is called from several places, or before.
    """
    learning, left_out = _Learning(run), set(in_host_time(run))
    host = costs(run, Phase.HOST, keep=lambda cost: cost not in left_out and not writes_output(cost))
    called = ((cost, learning.called_from(cost.stack)) for cost in host)
    known = [(cost, place) for cost, place in called if place is not None and learning.is_over(place)]
    function = function_key(spot.place)
    groups: dict[tuple[_Function, int], list[tuple[LineCost, Frame]]] = defaultdict(list)
    for cost, place in known:
        if function_key(cost.stack[0]) == function:
            groups[learning.statement(place)].append((cost, place))
    if not groups:
        return None
    key = max(groups, key=lambda each: seconds(cost for cost, _ in groups[each]))
    if seconds(cost for cost, _ in groups[key]) < MOSTLY * spot.seconds:
        return None
    owner = _class_of(spot.place)
    whole = [
        cost
        for cost, place in known
        if learning.statement(place) == key
        or (owner is not None and owner not in learning.classes and _class_of(cost.stack[0]) == owner)
    ]
    return Called(max(groups[key], key=lambda each: each[0].seconds)[1], seconds(whole))


def _often(lines: Sequence[LineCost]) -> set[Frame]:
    """Return the frames that more than a stray sample was seen below."""
    below: dict[Frame, float] = defaultdict(float)
    for cost in lines:
        for frame in set(cost.stack):
            below[frame] += cost.seconds
    least = SELDOM * seconds(lines)
    return {frame for frame, spent in below.items() if spent > least}


def _class_of(frame: Frame) -> tuple[str, str] | None:
    owner = frame.function.partition(".<locals>")[0].rpartition(".")[0]
    return (frame.file, owner) if owner else None
