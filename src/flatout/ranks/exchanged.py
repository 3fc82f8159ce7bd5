"""Tensors between the whole batch and a rank's rows, as operations that gradients pass.

Outside of cut calls every rank holds the same tensors, and gradients are those of one process. Inside, a rank's
gradients are `ranks` times what its rows contribute, so that their mean over all ranks is the gradient of one process,
whether a parameter is used inside, outside or in both. Each operation's gradient is another one of them, so that
gradients of gradients are right, too.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd import Function

from flatout.ranks.group import RankGroup
from flatout.ranks.local_rows import HERE, OwnRows

__all__ = ["JoinRows", "Leave", "Mean", "TakeRows", "Tie", "Visit", "applied", "joined_parts", "taken_rows"]


class Tie:
    """What the results of one cut call have in common: the call's module, its rows, and what led to it."""

    __slots__ = ("before", "group", "module", "rows")

    def __init__(self, module: Any, rows: OwnRows, group: RankGroup) -> None:
        """Take what is cut; nothing leads to it yet."""
        self.module, self.rows, self.group = module, rows, group
        self.before: list[Any] = []  # nodes of the graph that the whole arguments come from


def applied(operation: Any, *args: Any) -> Any:
    """Return what one of these operations gives."""
    return operation.apply(*args)


class JoinRows(Function):
    """The whole of what ranks have computed of their rows."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, tie: Tie, dim: int, sizes: tuple[int, ...]) -> torch.Tensor:
        """Gather the parts of all ranks."""
        ctx.ties, ctx.dim, ctx.sizes = (tie,), dim, sizes
        return tie.group.joined(part, dim, sizes)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Hand this rank's rows on, times the number of ranks."""
        (tie,) = ctx.ties
        if HERE.backward:  # what is computed again in this pass belongs to the call
            HERE.rows = tie.rows
        return applied(TakeRows, grad, tie, ctx.dim, ctx.sizes) * tie.group.size, None, None, None


class TakeRows(Function):
    """This rank's rows of a tensor that all ranks hold."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, tie: Tie, dim: int, sizes: tuple[int, ...]) -> torch.Tensor:
        """Copy the rows."""
        ctx.ties, ctx.dim, ctx.sizes = (tie,), dim, sizes
        rank = tie.group.rank
        return whole.narrow(dim, sum(sizes[:rank]), sizes[rank]).clone(memory_format=torch.preserve_format)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Gather the gradient of all rows."""
        (tie,) = ctx.ties
        return applied(JoinRows, grad, tie, ctx.dim, ctx.sizes) / tie.group.size, None, None, None


class Visit(Function):
    """A tensor that all ranks hold, used whole by the rows of each."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, ties: tuple[Tie, ...]) -> torch.Tensor:
        """Hand it on."""
        ctx.ties = ties
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Average the gradients of the ranks."""
        return applied(Mean, grad, ctx.ties), None


class Mean(Function):
    """The mean over all ranks of what each has computed of its rows."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, ties: tuple[Tie, ...]) -> torch.Tensor:
        """Average it."""
        ctx.ties = ties
        found = own.detach().clone(memory_format=torch.contiguous_format)
        ties[0].group.average(found.view(-1))
        return found

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Hand the gradient to the rows of each rank; in their count it is the same."""
        return applied(Visit, grad, ctx.ties), None


class Leave(Function):
    """A result of a cut call that is the same on all ranks, since no row is in it."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, ties: tuple[Tie, ...]) -> torch.Tensor:
        """Hand it on."""
        ctx.ties = ties
        return own.view_as(own)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Hand the gradient on."""
        return applied(Visit, grad, ctx.ties), None


# -- arguments and results of a call --------------------------------------------------------------------------------


def taken_rows(leaf: Any, dim: int | None, tie: Tie) -> Any:
    """Return what this rank gets of an argument, which is cut along `dim`."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    differentiable = leaf.requires_grad and torch.is_grad_enabled()
    if differentiable and leaf.grad_fn is not None:
        tie.before.append(leaf.grad_fn)
    if dim is None:
        return applied(Visit, leaf, (tie,)) if differentiable else leaf
    if differentiable:
        return applied(TakeRows, leaf, tie, dim, tie.rows.shares)
    own = leaf.narrow(dim, tie.rows.first, tie.rows.number)
    return own.contiguous() if dim else own


def joined_parts(result: Any, dims: Sequence[int | None], stop: Callable[[str], NoReturn]) -> list[Any]:
    """Return the results of all ranks' rows, of a `CutResult` whose parts are joined along `dims`."""
    tie, found = result.tie, []
    for part, dim in zip(result.parts, dims, strict=True):
        if not isinstance(part, torch.Tensor):
            found.append(part)
        elif dim is None:
            found.append(applied(Leave, part, (tie,)) if part.requires_grad else part)
        else:
            each, more = divmod(part.shape[dim], tie.rows.number)
            if more:
                name, rows = type(tie.module).__name__, f"{tie.rows.number} of {tie.rows.total} rows"
                stop(f"{name} returns {part.shape[dim]} entries for {rows}: they cannot be told by rows")
            sizes = tuple(each * one for one in tie.rows.shares)
            whole = applied(JoinRows, part, tie, dim, sizes) if part.requires_grad else None
            found.append(tie.group.joined(part, dim, sizes) if whole is None else whole)
    return found
