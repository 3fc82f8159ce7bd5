"""Parameters of many rows of which a step reads few, and whose gradients have all rows all the same."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from flatout.probe.backward.recorded_pass import Leaf, NodeRun, RecordedPass
from flatout.schema.backward import DenseTable

__all__ = ["TableLook"]

_LOOKUPS = ("EmbeddingBackward0", "EmbeddingBagBackward0", "IndexBackward0", "IndexSelectBackward0")
_LEAST_ROWS = 1000


class TableLook:
    """Counts the rows of such gradients that are not zero."""

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._touched: dict[object, int] = {}

    def look(self, recorded: RecordedPass) -> None:
        """Count after a pass, once for each table."""
        for leaf, _ in _tables(recorded.nodes):
            tensor = leaf.ref()
            gradient = None if tensor is None else tensor.grad
            if gradient is not None and gradient.layout is torch.strided:
                rows = int((gradient != 0).any(1).sum())
                self._touched[leaf.identity] = max(rows, self._touched.get(leaf.identity, 0))

    def facts(self, passes: Iterable[RecordedPass], steps: int, optimizers: Iterable[Any]) -> tuple[DenseTable, ...]:
        """Return the tables with what making their gradients takes, the longest first."""
        leaves: dict[object, tuple[Leaf, NodeRun]] = {}
        seconds: dict[object, float] = {}
        for each in passes:
            for leaf, runs in _tables(each.nodes):
                leaves[leaf.identity] = leaf, runs[-1]
                seconds[leaf.identity] = seconds.get(leaf.identity, 0.0) + sum(run.seconds for run in runs)
        held = [(made, one) for made in optimizers for group in made.param_groups for one in group["params"]]
        elements, holder = sum(one.numel() for _, one in held), {id(one): type(made).__name__ for made, one in held}
        found = [
            DenseTable(
                place=run.place,
                node=run.name,
                rows=leaf.shape[0],
                columns=leaf.shape[1],
                touched=self._touched[number],
                seconds=seconds[number] / steps,
                of_optimizer=leaf.shape[0] * leaf.shape[1] / max(1, elements) if number in holder else 0.0,
                optimizer=holder.get(number, ""),  # type: ignore[call-overload]
            )
            for number, (leaf, run) in leaves.items()
            if number in self._touched
        ]
        return tuple(sorted(found, key=lambda one: -one.seconds - one.of_optimizer)[:8])


def _tables(nodes: Sequence[NodeRun]) -> list[tuple[Leaf, list[NodeRun]]]:
    """Return the tables that a pass reaches by look-ups alone, each with its own nodes: its sum, and the look-ups."""
    leading: dict[int, list[NodeRun]] = {}
    for run in nodes:
        for place in run.following:
            leading.setdefault(place, []).append(run)
    found = []
    for place, run in enumerate(nodes):
        leaf, before = run.leaf, leading.get(place, [])
        if leaf is None or not leaf.is_parameter or len(leaf.shape) != 2 or leaf.shape[0] < _LEAST_ROWS:
            continue
        if run.ran and before and all(each.name in _LOOKUPS for each in before):
            found.append((leaf, [run, *before]))
    return found
