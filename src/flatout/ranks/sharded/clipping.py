"""Gradients clipped by their norm, of which each rank has a share: no gradient is put together for it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.group import Together
from flatout.ranks.sharded.shard import Shard
from flatout.ranks.sharded.values import SharedValues

__all__ = ["clip_shares"]

_NOT_FINITE = (
    "The total norm of order {order} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable"
    " this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
)


def clip_shares(seams: Seams, values: SharedValues) -> None:
    """Let `torch.nn.utils.clip_grad_norm_` take the norm over the shares of all ranks."""

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def clip_grad_norm_(
            parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
            foreach: bool | None = None,
        ) -> Any:  # fmt: skip
            listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            shards = [one for one in map(values.live.of, listed) if one is not None and _is_apart(one)]
            if not shards or float(norm_type) <= 0 or len(set(map(id, listed))) < len(listed):
                return original(listed, max_norm, norm_type, error_if_nonfinite, foreach)
            hits.count += 1
            apart = {id(one.parameter) for one in shards}
            whole = [one.grad for one in listed if id(one) not in apart and one.grad is not None]
            return _clipped(shards, whole, max_norm, float(norm_type), error_if_nonfinite, values)

        return clip_grad_norm_

    seams.wrap("torch.nn.utils:clip_grad_norm_", make)


def _is_apart(shard: Shard) -> bool:
    return shard.grad is None and shard.part.grad is not None


@torch.no_grad()
def _clipped(
    shards: Sequence[Shard], whole: Sequence[Any], max_norm: float, order: float, strictly: bool, values: SharedValues
) -> Any:
    shares: list[Any] = [one.part.grad for one in shards]
    norms = torch.stack([torch.linalg.vector_norm(one, order).to(shares[0].device) for one in shares])
    values.within.meet(Together.GRADIENTS, len(shards), always=True)
    everywhere = torch.linalg.vector_norm(values.within.everywhere(norms), order, 0)
    others = [torch.linalg.vector_norm(one, order).to(everywhere) for one in whole]
    total = torch.linalg.vector_norm(torch.cat([everywhere, *(one.reshape(1) for one in others)]), order)
    if strictly and not bool(torch.isfinite(total)):
        raise RuntimeError(_NOT_FINITE.format(order=order))
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for one in (*shares, *whole):
        one.mul_(factor.to(one.device))
    return total
