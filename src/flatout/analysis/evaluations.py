"""Whether the time between epochs is an evaluation by methods of the model, of which no call of it tells."""

from collections.abc import Sequence
from dataclasses import replace

from flatout.schema.phase import Phase
from flatout.schema.run import LineCost, Run

__all__ = ["with_evaluations"]

_MOSTLY = 0.5
_LEAST_SAMPLES = 20
_KEEPS = ("update", "average", "save", "load", "init", "reset", "state", "copy")  # methods that run no batch


def with_evaluations(run: Run) -> Run:
    """Return the Run with its gaps between epochs as validation, where most of them is spent in methods of the model.

    A decoder that writes sentence by sentence, a nearest neighbour among features: the trained model runs, piece by
    piece. Gaps of a recording with validations that were recognized stay what they are.
    """
    if run.causes is None or any(stretch.phase == Phase.VALIDATION for stretch in run.outside):
        return run
    seen = [cost for cost in run.causes.lines if cost.phase == Phase.EPOCH_GAP and cost.process == "main"]
    names = {model.name for model in run.models if model.name}
    inside = [cost for cost in seen if any(_runs(frame.function, names) for frame in cost.stack)]
    if sum(cost.samples for cost in inside) < _LEAST_SAMPLES or _seconds(inside) < _MOSTLY * _seconds(seen):
        return run
    outside = tuple(
        replace(stretch, phase=Phase.VALIDATION) if stretch.phase == Phase.EPOCH_GAP else stretch
        for stretch in run.outside
    )
    lines = tuple(
        replace(cost, phase=Phase.VALIDATION) if cost.phase == Phase.EPOCH_GAP else cost for cost in run.causes.lines
    )
    end = run.epoch_end
    if end is not None:
        end = replace(end, validation_s=end.validation_s + end.gap_s, gap_s=0.0)
    return replace(run, outside=outside, epoch_end=end, causes=replace(run.causes, lines=lines))


def _runs(function: str, names: set[str]) -> bool:
    """Return whether a qualified name is that of a method of one of these classes that may run a batch."""
    owner, _, method = function.partition(".<locals>")[0].rpartition(".")
    return owner.rpartition(".")[2] in names and not method.strip("_").startswith(_KEEPS)


def _seconds(costs: Sequence[LineCost]) -> float:
    return sum(cost.seconds for cost in costs)
