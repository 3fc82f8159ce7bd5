"""Inputs that the model saw without gradients first, and that come back as what it is trained on: collected data.

Reinforcement learning acts in its environment with the policy that it trains, and then trains on what it saw there;
self-training labels samples and trains on them. Both look like validation: forward passes without gradients between
steps. They are told from it by the rows of their inputs: those of a validation were trained on before, or never are.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import user_stack
from flatout.probe.loader.loading import tensors_in
from flatout.schema.run import Collected, Frame, Step

__all__ = ["PROBE", "CollectedInputs"]

_ROWS, _LONGEST = 64, 4096  # rows of a call, and values of a row, that are looked at
_MOST_KNOWN = 100_000
_MOST_ON_DEVICE = 64  # calls whose inputs are brought to the host
_LEAST_VALUES = 2
_MOST_STACKS = 256  # of each kind of calls


class CollectedInputs:
    """Remembers the rows of both kinds of calls."""

    def __init__(self) -> None:
        """Know no row yet."""
        self._trained: set[int] = set()
        self._seen: set[int] = set()  # without gradients, and not trained on before
        self._calls = self._rows = self._checked = self._matched = 0
        self._steps = self._with_calls = self._calls_before = 0
        self._on_device = 0
        self._lines: dict[bool, set[tuple[str, int, str]]] = {False: set(), True: set()}  # by whether with gradients
        self._noted = {False: 0, True: 0}

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what looks at the inputs of a call of an outermost module."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._look([*args, *kwargs.values()])
            self._note_lines(sys._getframe(1))
            return inner(*args, **kwargs)

        return call

    def _look(self, given: list[Any]) -> None:
        rows = self._rows_of(given)
        if not torch.is_grad_enabled():
            self._calls += 1
            new = {row for row in rows if row not in self._trained}
            self._rows += len(rows)
            if len(self._seen) < _MOST_KNOWN:
                self._seen |= new
            return
        self._checked += len(rows)
        self._matched += sum(row in self._seen for row in rows)
        if len(self._trained) < _MOST_KNOWN:
            self._trained.update(rows)

    def _note_lines(self, frame: FrameType) -> None:
        """Note the lines that led to a call, of the first calls of each kind."""
        with_grad = torch.is_grad_enabled()
        if self._noted[with_grad] < _MOST_STACKS:
            self._noted[with_grad] += 1
            self._lines[with_grad].update(user_stack(frame))

    def _rows_of(self, given: list[Any]) -> list[int]:
        """Return a number for each of the first rows of the first tensor that has rows of several values."""
        try:
            for tensor in tensors_in(given):
                if not tensor.is_floating_point() or tensor.numel() < _LEAST_VALUES or tensor.requires_grad:
                    continue
                if tensor.device.type != "cpu":
                    self._on_device += 1
                    if self._on_device > _MOST_ON_DEVICE:
                        return []
                rows = tensor.detach()[None] if tensor.dim() == 1 else tensor.detach()
                flat = rows[:_ROWS].flatten(1)[:, :_LONGEST].float().cpu().contiguous().numpy()
                return [hash(row.tobytes()) for row in flat if row.size >= _LEAST_VALUES and row.min() < row.max()]
        except Exception:  # a tensor of a kind that has no values to look at: a probe must not end the script
            return []
        return []

    def step(self, step: Step, number: int) -> None:
        """A step is over."""
        self._steps += 1
        self._with_calls += self._calls > self._calls_before
        self._calls_before = self._calls

    def facts(self) -> Collected | None:
        """Return what was seen, None where no call without gradients was."""
        if not self._calls:
            return None
        return Collected(
            calls=self._calls,
            rows=self._rows,
            checked=self._checked,
            matched=self._matched,
            steps=self._steps,
            steps_with_calls=self._with_calls,
            acting=tuple(Frame(*line) for line in sorted(self._lines[False] - self._lines[True])),
            learning=tuple(Frame(*line) for line in sorted(self._lines[True])),
        )


PROBE = Probe(
    name="collected-inputs",
    make=lambda deep: CollectedInputs(),
    step=CollectedInputs.step,
    around_always=CollectedInputs.around,
    causes={"collected": CollectedInputs.facts},
)
