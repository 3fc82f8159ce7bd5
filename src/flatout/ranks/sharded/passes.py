"""Backward passes over sharded parameters: a block is put together when something of it is needed, and let go after it.

When a block is let go, its gradients are averaged, and each rank keeps its share. That may happen before all of them
are there: what comes later is averaged at the end, and added.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from flatout.ranks.group import Together
from flatout.ranks.sharded.shard import Shard
from flatout.ranks.sharded.values import SharedValues, kinds

__all__ = ["ShardedPasses"]

_GRAPH = (
    "backward(create_graph=True) leaves gradients that have a graph, and ranks have shares of them: use"
    " torch.autograd.grad"
)
_AT_A_TIME = 2  # blocks that are whole in a backward pass


class ShardedPasses:
    """What happens around backward passes, and to gradients between them."""

    def __init__(self, values: SharedValues, stop: Callable[[str], NoReturn]) -> None:
        """Take the values, and what ends the training."""
        self._values, self._stop = values, stop
        self._running = False
        self._recent: list[tuple[Shard, ...]] = []
        self.quiet = False  # gradients of which ranks keep shares are not told

    # -- a pass -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def around(self, modules: Iterable[Any], *, rest: Any) -> Iterator[None]:
        """Run a backward pass through calls of `modules`; `rest(module)` is what no block of a module has."""
        if self._running or not self._values.live.made:
            yield
            return
        called = _each(one for module in modules for one in map(self._values.live.of, module.parameters()))
        pinned = _each(one for module in modules for one in rest(module))
        had = [one for one in self._values.live.all() if one.grad is not None]
        for one in had:
            one.put_down_gradient()
        self._values.together(pinned)
        for one in pinned:
            one.users += 1
        self._running = True
        ended = False
        try:
            yield
            ended = True
        finally:
            self._running = False
            for one in pinned:
                one.users -= 1
                one.show(False)
            recent, self._recent = self._recent, []
            if ended:
                for block in recent:
                    self._exchange(block)
                self._end(_each((*called, *had, *(one for one in self._values.live.all() if one.grad is not None))))
            self._values.let_go()
            self._values.release(self._values.live.all())
            self._values.notes.clear()

    def need(self, shard: Shard) -> None:
        """Have a parameter whole, and what else is in its block."""
        block = shard.block
        if not self._running:
            self._values.hold(block)
            return
        if block in self._recent or shard.users:
            self._values.together(block if not shard.users else (shard,))
            return
        self._recent.append(block)
        if len(self._recent) > _AT_A_TIME:
            oldest = self._recent.pop(0)
            self._exchange(oldest)
            self._values.release(oldest)
        self._values.together(block)

    def _end(self, shards: Sequence[Shard]) -> None:
        """Average what no block has, and give the script what it holds of gradients."""
        if not shards:
            return
        there = torch.tensor([[one.grad is not None, one.grad_held is not None] for one in shards], dtype=torch.uint8)
        self._values.group.meet(Together.GRADIENTS, len(shards), always=True)
        anywhere = self._values.group.everywhere(there).amax(0).tolist()
        self._exchange([one for one, (grad, _) in zip(shards, anywhere, strict=True) if grad])
        for one, (_, held) in zip(shards, anywhere, strict=True):
            if held:
                self._give_back(one)

    def _exchange(self, shards: Sequence[Shard]) -> None:
        """Average gradients, with a count of the ranks that have each, and keep the shares."""
        shards = [one for one in shards if one.ref() is not None and one.parameter.requires_grad]
        for some in kinds(shards):
            self._values.group.meet(Together.GRADIENTS, len(some), always=True)
            own = [one.grad for one in some]
            if any(one is not None and one.requires_grad for one in own):
                self._stop(_GRAPH)
            there = some[0].part.new_tensor([float(one is not None) for one in own])
            flat = torch.cat([*(_flat(grad, of) for grad, of in zip(own, some, strict=True)), there.detach()])
            self._values.group.average(flat)
            anywhere = flat[-len(some) :].tolist()
            at = 0
            for one, shared in zip(some, anywhere, strict=True):
                if shared:
                    _add(one, one.share(one.shaped(flat[at : at + one.numel])))
                    one.grad = None
                at += one.numel

    # -- between passes -----------------------------------------------------------------------------------------

    def gradient(self, parameter: Any) -> Any:
        """Return the gradient of a resting parameter, as one process has it."""
        shard = self._values.live.known(parameter)
        if shard.grad is None and shard.part.grad is not None and not self.quiet and not self._running:
            self._give_back(shard)
        return shard.grad

    def set_gradient(self, parameter: Any, value: Any) -> None:
        """Give a resting parameter another gradient, or none."""
        shard = self._values.live.known(parameter)
        shard.part.grad = None
        shard.grad = value

    def _give_back(self, shard: Shard) -> None:
        """Put a gradient together, in what the script holds of it if it does."""
        share = shard.part.grad
        if share is None:
            return
        self._values.group.meet(Together.GRADIENTS, shard.numel, always=True)
        (flat,) = self._values.wholes([shard], [share])
        held, shard.grad_held, shard.part.grad = shard.grad_held, None, None
        with torch.no_grad():
            shard.grad = shard.shaped(flat) if held is None else held.copy_(shard.shaped(flat))


def _each(shards: Iterable[Shard | None]) -> list[Shard]:
    """Return each of them once."""
    return list({id(one): one for one in shards if one is not None}.values())


def _flat(grad: Any, of: Shard) -> torch.Tensor:
    """Return a gradient in the order in which the parameter lies in memory, zeros for none."""
    if grad is None:
        return torch.zeros(of.numel, dtype=of.part.dtype, device=of.part.device)
    whole = torch.empty_strided(of.shape, of.stride, dtype=grad.dtype, device=grad.device)
    return whole.copy_(grad.detach()).as_strided((of.numel,), (1,))


def _add(shard: Shard, share: torch.Tensor) -> None:
    """Add to the gradient of this rank's share."""
    if shard.part.grad is None:
        shard.part.grad = share
    else:
        shard.part.grad += share
