"""Kinds of calls of one module: what has to be the same for a call to be cut as another one was."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flatout.ranks.fitness import modes, settings
from flatout.ranks.proof import Call, CutForm

__all__ = ["CallKind", "kind_of", "known_kind"]


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


def kind_of(call: Call, modules: list[Any]) -> CallKind:
    """Return the kind of a call; `modules`: the module and its parts."""
    mode = (modes(modules), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    numbers = tuple(leaf for leaf in call.leaves if isinstance(leaf, int))
    return CallKind(mode, call.structure, tuple(map(_type, call.leaves)), (numbers, settings(modules)))


def known_kind(kinds: Sequence[CallKind], one: CallKind) -> CallKind | None:
    """Return what is known of a kind of call."""
    return next((kind for kind in kinds if _key(kind) == _key(one)), None)


def _key(kind: CallKind) -> tuple[Any, ...]:
    return kind.mode, kind.leaves, kind.values, kind.structure


def _type(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dim(), leaf.dtype, leaf.device.type, leaf.requires_grad
    return leaf if isinstance(leaf, (bool, str, type(None))) else type(leaf)
