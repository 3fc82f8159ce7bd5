"""The host time of one statement of the training loop that follows forward, backward and optimizer."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.rules.facts.manual_loading import in_host_time
from flatout.rules.facts.output_calls import writes_output
from flatout.rules.facts.user_lines import Hotspot, costs, function_key, seconds
from flatout.rules.source.loops import statement_apart
from flatout.rules.source.source_code import statement
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["Called", "of_one_statement"]

MOSTLY = 0.8
SELDOM = 0.02  # of a phase: a sample is sometimes attributed to the line after the one that ran
LEARNING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_Function = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Called:
    """A statement of the training loop: the line that was sampled, and its seconds on the host."""

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
        """Return the outermost line below which no forward, backward or optimizer runs."""
        return next((frame for frame in reversed(stack) if frame not in self.frames), None)

    def is_over(self, place: Frame) -> bool:
        """Return whether a line follows the last backward and optimizer step of its function; False if it has none."""
        return place.line > self._last.get(function_key(place), place.line)

    def statement(self, place: Frame) -> tuple[_Function, int]:
        """Return the largest statement around a line that contains no forward, backward or optimizer."""
        key = function_key(place)
        node = statement_apart(place, self._lines[key])
        return key, place.line if node is None else node.lineno


def of_one_statement(run: Run, spot: Hotspot) -> Called | None:
    """Return the statement that calls a function after backward and optimizer of the step, and its host time.

    The other methods of the function's class are included unless the class runs forward, backward or optimizer; writing
    output and making batches are left out. None where the function is called from several places, or earlier.
    """
    learning, left_out = _Learning(run), set(in_host_time(run))
    host = costs(run, Phase.HOST, keep=lambda cost: cost not in left_out and not writes_output(cost))
    called = ((cost, learning.called_from(cost.stack)) for cost in host)
    known = [(cost, place) for cost, place in called if place is not None and learning.is_over(place)]
    function = function_key(spot.inside)
    groups: dict[tuple[_Function, int], list[tuple[LineCost, Frame]]] = defaultdict(list)
    for cost, place in known:
        if function_key(cost.stack[0]) == function:
            groups[learning.statement(place)].append((cost, place))
    if not groups:
        return None
    key = max(groups, key=lambda each: seconds(cost for cost, _ in groups[each]))
    if seconds(cost for cost, _ in groups[key]) < MOSTLY * spot.seconds:
        return None
    owner = _class_of(spot.inside)
    whole = [
        cost
        for cost, place in known
        if learning.statement(place) == key
        or (owner is not None and owner not in learning.classes and _class_of(cost.stack[0]) == owner)
    ]
    return Called(max(groups[key], key=lambda each: each[0].seconds)[1], seconds(whole))


def _often(lines: Sequence[LineCost]) -> set[Frame]:
    """Return the frames below which more than a stray sample was seen."""
    below: dict[Frame, float] = defaultdict(float)
    for cost in lines:
        for frame in set(cost.stack):
            below[frame] += cost.seconds
    least = SELDOM * seconds(lines)
    return {frame for frame, spent in below.items() if spent > least}


def _class_of(frame: Frame) -> tuple[str, str] | None:
    owner = frame.function.partition(".<locals>")[0].rpartition(".")[0]
    return (frame.file, owner) if owner else None
