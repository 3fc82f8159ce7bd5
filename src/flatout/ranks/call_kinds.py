"""Kinds of calls of one module: what has to be the same for a call to be cut as another one was."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flatout.ranks.fitness import modes, settings
from flatout.ranks.proof import CutForm, NotTried
from flatout.ranks.whole_call import Call

__all__ = ["CallKind", "ResultHistory", "kind_of", "known_kind"]


_MOST_VALUES = 256
_MOST_MISFITS = 32  # calls, each of which is made twice
_LAST_TRY = 16  # calls of a kind that could not be tried
_SELDOM = 1024  # calls from one proof to the next, later in a training


@dataclass(slots=True)
class ResultHistory:
    """What calls of one kind have returned."""

    given: set[tuple[Any, ...]] = field(default_factory=set)  # whole numbers that have no row in them
    others: int = 0  # calls that have returned others
    single: str | None = None  # why calls with one row in a rank are left whole, "" where they are cut as the others
    misfits: int = 0  # calls whose results could not be joined

    def gives(self, numbers: tuple[Any, ...], *, fresh: bool) -> bool:
        """Take down whole numbers that a call has returned; return whether it is to be proven for them.

        `fresh`: it was proven just now.
        """
        if not numbers or numbers in self.given:
            return False
        if len(self.given) < _MOST_VALUES:
            self.given.add(numbers)
        if fresh:
            return False
        self.others += 1
        return _is_power_of_two(self.others)

    def misfit(self) -> bool:
        """Count a call whose results could not be joined; return whether there are too many of them."""
        self.misfits += 1
        return self.misfits > _MOST_MISFITS


@dataclass(slots=True)
class CallKind:
    """One kind of call: in this mode, with arguments of these types and of these plain values.

    `values` are whole numbers among the arguments, and settings of the module's own parts: a step, a stage, a switch.
    A module may look at its batch as a whole from one of them on. Fractions change too often, and decide too seldom.
    """

    mode: tuple[Any, ...]
    structure: Any
    leaves: tuple[Any, ...]
    values: tuple[Any, ...]
    form: CutForm | str = ""
    calls: int = 1
    fresh: bool = True  # proven in this very call
    paths: set[tuple[int, ...]] = field(default_factory=set)  # nodes that the call has made in each rank, as proven
    named: set[tuple[Any, ...]] = field(default_factory=set)  # values of what the code names, as met
    changes: int = 0  # of these values
    skipped: bool = False  # some of them were not proven
    results: ResultHistory = field(default_factory=ResultHistory)

    def meets(self, values: tuple[Any, ...]) -> bool:
        """Count a call with these values of what its code names; return whether it is to be proven for them."""
        self.calls += 1
        self.fresh = False
        if values in self.named:
            return False
        if len(self.named) < _MOST_VALUES:
            self.named.add(values)
        self.changes += 1
        looked_at = _is_power_of_two(self.changes)
        self.skipped = self.skipped or not looked_at
        return looked_at

    @property
    def is_due(self) -> bool:
        """Whether this call is one of those that are proven again: often at the start, and seldom later."""
        if isinstance(self.form, NotTried):
            return self.calls <= _LAST_TRY and _is_power_of_two(self.calls)
        return _is_power_of_two(self.calls) or self.calls % _SELDOM == 0


def kind_of(call: Call, modules: list[Any]) -> CallKind:
    """Return the kind of a call; `modules`: the module and its parts."""
    mode = (modes(modules), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    numbers = tuple(leaf for leaf in call.leaves if isinstance(leaf, int))
    return CallKind(mode, call.structure, tuple(map(_type, call.leaves)), (numbers, settings(modules)))


def known_kind(kinds: Sequence[CallKind], one: CallKind) -> CallKind | None:
    """Return what is known of a kind of call."""
    return next((kind for kind in kinds if _key(kind) == _key(one)), None)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _key(kind: CallKind) -> tuple[Any, ...]:
    return kind.mode, kind.leaves, kind.values, kind.structure


def _type(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dim(), leaf.dtype, leaf.device.type, leaf.requires_grad
    return leaf if isinstance(leaf, (bool, str, type(None))) else type(leaf)
