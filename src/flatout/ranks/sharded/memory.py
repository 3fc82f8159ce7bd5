"""Bytes of parameters, gradients and optimizer state: on this rank, and what one process has."""

from collections.abc import Iterable, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import torch

from flatout.ranks.account import RankAccount
from flatout.ranks.sharded.shard import Shard
from flatout.ranks.sharded.values import SharedValues

__all__ = ["MemoryAccount"]


class MemoryAccount:
    """Counts what there is after steps, for the words at the end of the training."""

    def __init__(self, values: SharedValues, account: RankAccount) -> None:
        """Note nothing yet."""
        self._values, self._account = values, account
        self._optimizers: MutableMapping[Any, tuple[int, int]] = WeakKeyDictionary()
        self._reasons: set[str] = set()

    def left(self, reason: str) -> None:
        """Parameters stay whole."""
        self._reasons.add(reason)
        self._account.facts["unsharded"] = sorted(self._reasons)

    def look(self, optimizer: Any, shards: Iterable[Shard]) -> None:
        """Count what an optimizer has after a step: values, gradients and state."""
        own = whole = 0
        known = {id(one.parameter): one for one in shards}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                shard = known.get(id(parameter))
                of = parameter if shard is None else shard.part
                state = dict.get(optimizer.state, of, {})
                more = [one for one in state.values() if isinstance(one, torch.Tensor)]
                gradients = [of.grad] if of.grad is not None else []
                here = [of, *gradients, *more]
                own += sum(map(_bytes, here))
                times = 1.0 if shard is None else shard.numel / of.numel()
                whole += sum(int(_bytes(one) * (times if one.shape == of.shape else 1)) for one in here)
                if shard is not None and shard.whole:
                    own += _bytes(of) * shard.numel // of.numel()
                if shard is not None and shard.grad is not None:
                    own += _bytes(shard.grad)
        if whole >= self._optimizers.get(optimizer, (0, 0))[1]:
            self._optimizers[optimizer] = own, whole
        totals = [sum(each) for each in zip(*self._optimizers.values(), strict=True)]
        self._account.facts["sharded"] = {"own": totals[0], "whole": totals[1], "together": self._values.largest}


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
