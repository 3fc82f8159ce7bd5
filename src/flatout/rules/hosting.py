"""Which of the sampled host time is work that Python does in the loop, and not computing that torch must do."""

from collections import Counter
from collections.abc import Sequence

from flatout.rules.handmade import in_host_time
from flatout.rules.lines import Hotspot, costs, outer_lines, seconds
from flatout.rules.loops import in_loop, statement_of_step
from flatout.rules.output_calls import writes_output
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["of_one_statement", "python_work", "writing"]

MOSTLY = 0.8

TORCH = frozenset({"torch", "torchvision", "torchaudio", "functorch"})


def writing(run: Run) -> tuple[LineCost, ...]:
    """Return the host time in printing, logging, drawing and writing files."""
    return costs(run, Phase.HOST, keep=writes_output)


def python_work(run: Run) -> tuple[LineCost, ...]:
    """Return the host time in the user's own functions that neither write nor only call torch once.

    What runs directly below the call of a loop (`trainer.fit`) is the loop of a framework, not the user's.
    """
    making_batches = set(in_host_time(run))
    outer = outer_lines(run)
    return costs(
        run,
        Phase.HOST,
        keep=lambda cost: (
            cost not in making_batches
            and not outer.intersection(cost.stack[:1])
            and not writes_output(cost)
            and _is_python_work(cost)
        ),
    )


def of_one_statement(run: Run, spot: Hotspot) -> tuple[Frame, tuple[LineCost, ...]] | None:
    """Return the line of the training loop that calls a function, and all that its statement costs on the host.

    Of what comes after the backward pass alone: nothing is learned from it in this step. The other methods of the same
    class go with it; what writes is left out. None where the function is called from several statements, or where the
    loop cannot be told from what is around it.
    """
    outer = outer_lines(run)
    if not outer:
        return None
    steps = Counter(_called_from(cost.stack, outer) for cost in costs(run, Phase.OPTIMIZER))
    step = steps.most_common(1)[0][0] if steps else None
    after = [(cost, _called_from(cost.stack, outer)) for cost in costs(run, Phase.HOST) if not writes_output(cost)]
    known = [(cost, place) for cost, place in after if place is not None and _comes_after(cost, place, step)]
    own = [(cost, place) for cost, place in known if cost.stack[0].function == spot.place.function]
    calls = {_statement(place): place for cost, place in own}
    hottest_line = next((place for cost, place in own if place == spot.place), None)
    if hottest_line is not None:  # the loop's own function: one of its statements
        calls = {_statement(hottest_line): hottest_line}
        own = [(cost, place) for cost, place in own if _statement(place) in calls]
    if len(calls) != 1 or seconds(cost for cost, _ in own) < MOSTLY * spot.seconds:
        return None
    statement, place = next(iter(calls.items()))
    owner = _class_of(spot.place)
    kept = (cost for cost, at in known if _statement(at) == statement or (owner and _class_of(cost.stack[0]) == owner))
    return place, tuple(kept)


def _comes_after(cost: LineCost, place: Frame, step: Frame | None) -> bool:
    """Return whether a line runs after the backward pass; without a loader, what follows the step leads the next."""
    if cost.part == "lead" and step is not None:
        return (place.file, place.function) == (step.file, step.function) and place.line > step.line
    return cost.part == "tail"


def _called_from(stack: Sequence[Frame], outer: frozenset[Frame]) -> Frame | None:
    """Return the outermost line that is not around the whole loop."""
    return next((frame for frame in reversed(stack) if frame not in outer), None)


def _statement(place: Frame) -> tuple[str, str, int]:
    node = statement_of_step(place)
    return place.file, place.function, place.line if node is None else node.lineno


def _class_of(frame: Frame) -> tuple[str, str] | None:
    owner = frame.function.partition(".<locals>")[0].rpartition(".")[0]
    return (frame.file, owner) if owner else None


def _is_python_work(cost: LineCost) -> bool:
    """Return whether a line does work of Python's.

    A torch operation called from the user's line shows no frame of its own: between the forward and the backward pass a
    line of user code is most likely the loss, unless it stands in a loop.
    """
    if not cost.stack:
        return False
    if cost.leaf in TORCH or (cost.leaf == "" and cost.part == "loss"):
        return any(in_loop(frame) for frame in cost.stack)
    return True
