"""Models too large for one device: put in place, for the other parts of a rank and for parameters that are touched."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from flatout.native.holders import can_count_holders
from flatout.probe.core.seams import Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.group import RankGroup
from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.calls import ShardedCalls
from flatout.ranks.sharded.clipping import clip_shares
from flatout.ranks.sharded.memory import MemoryAccount
from flatout.ranks.sharded.optimizer_shares import OptimizerShares
from flatout.ranks.sharded.passes import ShardedPasses
from flatout.ranks.sharded.past_python import take_past_python
from flatout.ranks.sharded.resting import RestingParameter
from flatout.ranks.sharded.values import SharedValues

__all__ = ["Sharding", "backward_pass", "is_sharded", "share_of_gradient"]


class Sharding:
    """What a rank does with the parameters of which it keeps a share."""

    def __init__(
        self, group: RankGroup, within: RankGroup, account: RankAccount, stop: Callable[[str], NoReturn]
    ) -> None:
        """Take all ranks, and those `within` which a whole is shared out."""
        if not can_count_holders():
            stop("--shard needs a newer version of torch: this one does not count what holds the memory of a tensor")
        account.facts["shard"] = True
        self._values = SharedValues(group, within)
        self._passes = ShardedPasses(self._values, stop)
        self._values.notes.need = self._passes.need
        self._calls = ShardedCalls(self._values, self._passes.need)
        self._optimizers = OptimizerShares(self._values, self._passes, MemoryAccount(self._values, account), stop)
        self.touched = self._values.touched
        self.copied = self._values.copied
        self.gradient = self._passes.gradient
        self.set_gradient = self._passes.set_gradient

    def install(self, seams: Seams, fits: Callable[[], bool]) -> None:
        """Put it in place, before calls are cut; nothing is shared out unless it `fits`."""
        HERE.sharding = self
        self._calls.install(seams)
        self._values.notes.install(seams)
        take_past_python(seams)
        self._optimizers.install(seams, fits)
        clip_shares(seams, self._values)

    def around(self, modules: Iterable[Any]) -> Any:
        """Return the context of a backward pass through calls of `modules`."""
        return self._passes.around(list(modules), rest=lambda module: self._calls.plan_of(module).rest)

    def gradient_here(self, parameter: Any) -> Any:
        """Return what this rank has of the gradient of a parameter of which it keeps a share."""
        shard = self._values.live.of(parameter)
        return None if shard is None else shard.part.grad

    def tried(self, module: Any, copied: Any) -> None:
        """Take note that `copied` is a copy of `module` on which a call is tried."""
        self._calls.tried(module, copied)


def backward_pass(modules: Iterable[Any]) -> Any:
    """Return the context of a backward pass through calls of `modules`."""
    return contextlib.nullcontext() if HERE.sharding is None else HERE.sharding.around(modules)


def is_sharded(parameter: Any) -> bool:
    """Return whether each rank keeps a share of a parameter."""
    return isinstance(parameter, RestingParameter)


def share_of_gradient(parameter: Any) -> Any:
    """Return what this rank has of a gradient: the whole, where it does not keep a share."""
    return HERE.sharding.gradient_here(parameter) if is_sharded(parameter) else parameter.grad
