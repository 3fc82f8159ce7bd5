"""The validation passes of a recording."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from flatout.rules.facts.gaps import num_pauses
from flatout.rules.facts.user_lines import MIN_SAMPLES, Hotspot, costs, hottest, seconds
from flatout.rules.source.source_code import ancestors
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Outside, Run

__all__ = ["input_share", "passes", "place", "spent", "what_calls_the_model"]

NEARLY_ALL = 0.8
PARTS = frozenset(
    {"forward", "__call__", "__getitem__", "__getitems__", "__next__", "__iter__", "collate", "collate_fn"}
)

_OF_INPUT = PARTS - {"forward", "__call__"}

EVALUATES = re.compile(r"valid|eval|test|predict|score", re.IGNORECASE)

Passage = tuple[Frame, int, LineCost]  # a line, how many user lines lie below it, and the cost that passes through


def passes(run: Run) -> tuple[Outside, ...]:
    """Return the stretches of validation after the first training step; an earlier one happens only once."""
    begun = run.steps[0].start_ns if run.steps else 0
    return tuple(stretch for stretch in run.outside if stretch.phase == Phase.VALIDATION and stretch.start_ns >= begun)


def spent(run: Run, breakdown: Breakdown) -> tuple[float, int]:
    """Return the seconds of validation after the first step, and the number of passes.

    A validation without a loader happens inside a step; the account has already moved its time out of the step.
    """
    after = passes(run)
    whole_ns = sum(stretch.wall_ns for stretch in run.outside if stretch.phase == Phase.VALIDATION)
    before_s = (whole_ns - sum(stretch.wall_ns for stretch in after)) / 1e9
    seconds = min(max(0.0, breakdown.outside_s(Phase.VALIDATION) - before_s), breakdown.loop_s)
    inside = sum(step.forward_without_grad for step in run.steps)
    return seconds, num_pauses(run, after) + (inside if inside * 2 <= len(run.steps) else 0)


def place(run: Run) -> Frame | None:
    """Return where validation happens: the line with the most time below it in the function that evaluates.

    That is the function with the loop over the validation loader; without one, the innermost function that is on the
    stack for nearly all of the time and is no part of a model or a dataset. Where what follows one call of the model by
    hand takes the time (features that are clustered), a deep run knows its lines as those of a gap.
    """
    lines = tuple(cost for cost in costs(run, Phase.VALIDATION) if cost.stack) or _of_the_model(run) or _in_gaps(run)
    loops = tuple(loader.iterated_at for loader in run.loaders if not loader.is_training and loader.iterated_at)
    known = {(loop.file, loop.function) for loop in loops}
    groups = _below(lines, _classes(run))
    looping = {function: group for function, group in groups.items() if function in known}
    if looping:
        return _hottest_line(max(looping.values(), key=_spent))
    if loops:
        return loops[0]
    spot = hottest(lines, among=lines)
    return _innermost(groups, lines) or (spot.place if spot else None)


def input_share(run: Run) -> float:
    """Return the share of validation that its loaders take, as far as the sampler has seen it; 1.0 where it has not."""
    lines = costs(run, Phase.VALIDATION)
    if sum(cost.samples for cost in lines) < MIN_SAMPLES:
        return 1.0
    walks = {loader.iterated_at for loader in run.loaders if loader.iterated_at}
    of_input = [cost for cost in lines if any(map(_makes_samples, cost.stack)) or {*cost.stack[:1]} & walks]
    return seconds(of_input) / max(seconds(lines), 1e-9)


def _makes_samples(frame: Frame) -> bool:
    return frame.function.rpartition(".")[2] in _OF_INPUT


def what_calls_the_model(run: Run, spot: Hotspot, lines: Sequence[LineCost]) -> Frame | None:
    """Return the line that nearly all of `lines` runs below, outside of the model or data set that `spot` lies in."""
    classes = _classes(run)
    if not _is_part(spot.inside, classes):
        return None
    return _innermost(_below(tuple(cost for cost in lines if cost.stack), classes), lines)


def _of_the_model(run: Run) -> tuple[LineCost, ...]:
    """Return what of the gaps between epochs is in the model: a deep run may take a validation by hand for a gap."""
    classes = _classes(run)
    return costs(run, Phase.EPOCH_GAP, keep=lambda cost: any(_is_part(frame, classes) for frame in cost.stack))


def _in_gaps(run: Run) -> tuple[LineCost, ...]:
    """Return what lies between epochs, where no line of a validation is known."""
    return tuple(cost for cost in costs(run, Phase.EPOCH_GAP) if cost.stack)


def _classes(run: Run) -> frozenset[str]:
    return frozenset(name for model in run.models for name in (model.name, *model.module_types))


def _innermost(groups: Mapping[tuple[str, str], list[Passage]], lines: Sequence[LineCost]) -> Frame | None:
    """Return the hottest line of the innermost function that is on the stack for nearly all of the time."""
    through = [group for group in groups.values() if _spent(group) >= NEARLY_ALL * seconds(lines)]
    return _hottest_line(min(through, key=lambda group: min(depth for _, depth, _ in group))) if through else None


def _below(lines: tuple[LineCost, ...], classes: frozenset[str]) -> dict[tuple[str, str], list[Passage]]:
    """Group the costs by the functions on their stacks, without models (`classes`), datasets and what they call.

    A recursive function counts where it is innermost.
    """
    groups: dict[tuple[str, str], list[Passage]] = defaultdict(list)
    for cost in lines:
        seen: set[tuple[str, str]] = set()
        parts = [i for i, frame in enumerate(cost.stack) if _is_part(frame, classes)]
        for depth, frame in enumerate(cost.stack[parts[-1] + 1 :] if parts else cost.stack):
            function = (frame.file, frame.function)
            if function not in seen:
                seen.add(function)
                groups[function].append((frame, depth, cost))
    return {function: group for function, group in groups.items() if sum(c.samples for *_, c in group) >= MIN_SAMPLES}


def _is_part(frame: Frame, classes: frozenset[str]) -> bool:
    """Return whether a function is part of a dataset or a model: a module's method that is not named for evaluation."""
    owner, _, name = frame.function.rpartition(".")
    if name in PARTS or not owner or EVALUATES.search(name):
        return name in PARTS
    return owner.rpartition(".")[2] in classes or _is_module(frame)


def _is_module(frame: Frame) -> bool:
    """Return whether the class around a line is written as a module of torch."""
    owner = next((node for node in ancestors(frame) if isinstance(node, ast.ClassDef)), None)
    return owner is not None and any(ast.unparse(base).endswith("Module") for base in owner.bases)


def _spent(group: list[Passage]) -> float:
    return seconds(cost for *_, cost in group)


def _hottest_line(group: list[Passage]) -> Frame:
    by_line: dict[Frame, float] = defaultdict(float)
    for frame, _, cost in group:
        by_line[frame] += cost.seconds
    return max(by_line, key=lambda frame: by_line[frame])
