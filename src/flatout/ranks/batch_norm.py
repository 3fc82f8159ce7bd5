"""Batch normalization over the rows of all ranks: statistics, running averages and gradients are those of one process.

Each rank computes mean and variance of its rows; all ranks combine them in the same order, in float64. What is left is
done by torch's own operations with these statistics.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.exchanged import applied
from flatout.ranks.group import RankGroup
from flatout.ranks.local_rows import HERE

__all__ = ["synchronize"]

_Tensor = torch.Tensor


def synchronize(seams: Seams, group: RankGroup) -> None:
    """Let `torch.nn.functional.batch_norm` normalize over all ranks inside of cut calls."""

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def batch_norm(
            input: Any,
            running_mean: Any,
            running_var: Any,
            weight: Any = None,
            bias: Any = None,
            training: bool = False,
            momentum: float = 0.1,
            eps: float = 1e-5,
        ) -> Any:
            if not training or torch.compiler.is_compiling() or HERE.own() is None:
                return original(input, running_mean, running_var, weight, bias, training, momentum, eps)
            hits.count += 1
            HERE.asked += 1
            return _normalized(input, (running_mean, running_var, momentum), weight, bias, eps, group)

        return batch_norm

    seams.wrap("torch.nn.functional:batch_norm", make)


def _normalized(
    rows: _Tensor, running: tuple[Any, Any, float], weight: Any, bias: Any, eps: float, group: RankGroup
) -> _Tensor:
    mean, variance, count = _statistics(rows.detach(), group)
    if count < 2:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {rows.size()}")
    _follow(running, mean, variance, count)
    kind = rows.dtype if rows.dtype is torch.float64 else torch.float32
    normalized: _Tensor = applied(_BatchNorm, rows, weight, bias, mean.to(kind), variance.to(kind), count, eps, group)
    return normalized


def _statistics(rows: _Tensor, group: RankGroup) -> tuple[_Tensor, _Tensor, int]:
    """Return mean and variance of each channel over all ranks, in float64, and the number of values in each."""
    dims = [0, *range(2, rows.dim())]
    number = rows.numel() // max(1, rows.shape[1])
    exact = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    variance, mean = torch.var_mean(exact, dims, correction=0)
    own = torch.stack([mean.double(), variance.double(), torch.full_like(mean, number, dtype=torch.float64)])
    everywhere = group.everywhere(own)
    means, variances, numbers = everywhere[:, 0], everywhere[:, 1], everywhere[:, 2]
    count = numbers.sum(0)
    total_mean = (means * numbers).sum(0) / count
    total_variance = ((variances + (means - total_mean) ** 2) * numbers).sum(0) / count
    return total_mean, total_variance, int(count[0].item())


def _follow(running: tuple[Any, Any, float], mean: _Tensor, variance: _Tensor, count: int) -> None:
    """Move the running averages as torch does, with the variance of a sample."""
    running_mean, running_var, momentum = running
    with torch.no_grad():
        if running_mean is not None:
            running_mean.copy_(running_mean * (1 - momentum) + (mean * momentum).to(running_mean.dtype))
        if running_var is not None:
            unbiased = variance * (count / (count - 1))
            running_var.copy_(running_var * (1 - momentum) + (unbiased * momentum).to(running_var.dtype))


class _BatchNorm(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: _Tensor, weight: Any, bias: Any, mean: _Tensor, variance: _Tensor, count: int, eps: float,
        group: RankGroup,
    ) -> _Tensor:  # fmt: skip
        ctx.save_for_backward(rows, weight, mean, variance)
        ctx.count, ctx.eps, ctx.group = count, eps, group
        return torch.batch_norm(rows, weight, bias, mean, variance, False, 0.0, eps, False)

    @staticmethod
    def backward(ctx: Any, grad: _Tensor) -> Any:
        rows, weight, mean, variance = ctx.saved_tensors
        if torch.is_grad_enabled():  # of this gradient another one is to be computed
            return *_gradients_in_steps(ctx, rows, weight, grad), None, None, None, None, None
        shape = [1, -1, *[1] * (rows.dim() - 2)]
        exact, upper = rows.to(mean.dtype), grad.to(mean.dtype)
        factor = torch.ones_like(mean) if weight is None else weight.to(mean.dtype)
        inner, along, summed = torch.ops.aten.native_batch_norm_backward(
            upper, exact, factor, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        everywhere = ctx.group.everywhere(torch.stack([summed, along]).double()).sum(0) / ctx.count
        scale = torch.rsqrt(variance.double() + ctx.eps)
        level = (everywhere[0] * scale * factor).to(mean.dtype).view(shape)
        slope = (everywhere[1] * scale * scale * factor).to(mean.dtype).view(shape)
        inner -= (exact - mean.view(shape)).mul_(slope).add_(level)
        wanted = ctx.needs_input_grad
        found = inner.to(rows.dtype) if wanted[0] else None
        of_weight = along.to(weight.dtype) if wanted[1] else None
        of_bias = summed.to(rows.dtype if weight is None else weight.dtype) if wanted[2] else None
        return found, of_weight, of_bias, None, None, None, None, None


class _Total(Function):
    """The sum over all ranks; in the count of gradients inside of cut calls, its gradient is another one of it."""

    @staticmethod
    def forward(ctx: Any, own: _Tensor, group: RankGroup) -> _Tensor:
        ctx.group = group
        return group.everywhere(own.detach()).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: _Tensor) -> Any:
        return applied(_Total, grad, ctx.group), None


def _gradients_in_steps(ctx: Any, rows: _Tensor, weight: Any, grad: _Tensor) -> tuple[Any, Any, Any]:
    """Return the gradients of rows, weight and bias, computed so that they have gradients, too."""
    dims, shape = [0, *range(2, rows.dim())], [1, -1, *[1] * (rows.dim() - 2)]
    exact, upper = rows.double(), grad.double()
    center = exact - (applied(_Total, exact.sum(dims), ctx.group) / ctx.count).view(shape)
    variance = applied(_Total, center.pow(2).sum(dims), ctx.group) / ctx.count
    scale = torch.rsqrt(variance + ctx.eps)
    standard = center * scale.view(shape)
    along, summed = (upper * standard).sum(dims), upper.sum(dims)
    level, slope = (applied(_Total, one, ctx.group) / ctx.count for one in (summed, along))
    factor = scale if weight is None else scale * weight.double()
    inner = (upper - level.view(shape) - standard * slope.view(shape)) * factor.view(shape)
    wanted, kind = ctx.needs_input_grad, rows.dtype if weight is None else weight.dtype
    return (
        inner.to(rows.dtype) if wanted[0] else None,
        along.to(kind) if wanted[1] else None,
        summed.to(kind) if wanted[2] else None,
    )
