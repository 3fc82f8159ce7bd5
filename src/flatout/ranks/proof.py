"""A call of a module, tried on copies: whether ranks that compute their rows get what one process gets.

Outputs, gradients of all parameters and arguments, buffers and the positions of random streams are compared with those
of the whole call, in float64 where the module runs in it. The module itself is called once, after that.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flatout.ranks.fitness import is_compiled
from flatout.ranks.group import PeerFailed, RankGroup, Together
from flatout.ranks.held_state import HeldState
from flatout.ranks.kept_values import kept_values, same_kept, since
from flatout.ranks.local_rows import HERE
from flatout.ranks.named_values import NamedValues, is_own
from flatout.ranks.rows import Dim, RowPlan, candidates, joined_dim
from flatout.ranks.sharded.sharding import is_sharded
from flatout.ranks.streams import Streams, same_streams, taken
from flatout.ranks.whole_call import (
    Call,
    NotEqual,
    Silence,
    WholeOutcome,
    copied_call,
    first_text,
    gradients,
    refuse_written_parameters,
    wanted_gradients,
    whole_call,
    written_counts,
)

__all__ = ["CutForm", "CutResult", "NotTried", "prove"]

_EXACT = 1e-7  # relative difference in float64
_ROUNDED = {torch.float32: 2e-3}
_COARSE = 5e-2  # of types with fewer bits
_SMALL = 1e-3  # of the largest gradient: what is below it is rounding of what cancels


@dataclass(frozen=True, slots=True)
class CutForm:
    """How one kind of call is cut, and how its results are joined."""

    plan: RowPlan
    results: tuple[Dim, ...]
    structure: Any
    depths: tuple[int | None, ...] = field(default=(), compare=False)  # dimensions of tensors among the results


@dataclass(frozen=True, slots=True)
class CutResult:
    """What a call with this rank's rows has given."""

    parts: list[Any]
    structure: Any
    tie: Any
    nodes: int = 0  # of the graph, that it has made
    wrote: bool = False  # to lists or tables among its arguments


class NotTried(str):
    """Why a call cannot be tried on copies; whether its rows depend on each other is not known."""

    __slots__ = ()


def prove(
    call: Call,
    run: Callable[[Any, list[Any], Any], Any],
    cut: Callable[[Any, list[Any], Any, RowPlan], CutResult],
    join: Callable[[CutResult, Sequence[Dim]], list[Any]],
    group: RankGroup,
    known: RowPlan | None = None,
) -> CutForm | str:
    """Return how `call` is cut, or why it is not; every rank comes to the same answer.

    `run` calls a module as it is, `cut` with this rank's rows, and `join` makes whole results of its results. `known`:
    how calls of its kind are cut, which is tried first.
    """
    shapes = [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None for leaf in call.leaves]
    tried = candidates(shapes)
    tried = [known, *(plan for plan in tried if plan != known)] if known is not None else tried
    plans = [plan for plan in tried if plan.rows(shapes) >= group.size]
    if not plans:
        return "none of its arguments is a batch"
    call.named = NamedValues(list(call.module.modules()))
    call.generators = [*call.named.generators(), *HeldState(call.objects, is_own).generators]
    before, group.tried, silenced = Streams(call.generators), True, logging.root.manager.disable
    out, err = contextlib.redirect_stdout(Silence()), contextlib.redirect_stderr(Silence(sys.stderr))
    try:
        logging.disable(logging.CRITICAL)
        with out, err:  # what the call says is said when it is made
            return _proven(call, run, (cut, join), plans, before, group)
    finally:
        logging.disable(silenced)
        group.tried = False
        before.put_back()


def _proven(
    call: Call,
    run: Callable[..., Any],
    ways: tuple[Callable[..., Any], ...],
    plans: list[RowPlan],
    before: Streams,
    group: RankGroup,
) -> CutForm | str:
    """Return what `prove` does, with the streams as they are `before` each trial."""
    whole, exact, reason = None, True, ""
    for exact in (True, False):
        whole, reason = whole_call(call, run, exact, group)
        before.put_back()
        if not reason:
            break
    if whole is None or reason:
        return NotTried(reason)
    for plan in plans:
        form, failed = _tried(call, plan, whole, ways, exact, group)
        before.put_back()
        if form is not None:
            return form
        reason = reason or failed
    return reason


# -- the call by rows -----------------------------------------------------------------------------------------------


def _tried(
    call: Call, plan: RowPlan, whole: WholeOutcome, ways: tuple[Callable[..., Any], ...], exact: bool, group: RankGroup
) -> tuple[CutForm | None, str]:
    """Return the form in which the call can be cut by `plan`, None and the reason where it cannot."""
    form, reason = None, ""
    try:
        form = _compared(call, plan, whole, ways, exact, group)
    except PeerFailed:
        pass
    except Exception as error:
        reason = str(error) if isinstance(error, NotEqual) else f"it cannot compute a part of a batch ({_told(error)})"
        _end(group, Together.FAILED)
    else:
        form = form if _end(group, Together.DONE) else None
    finally:
        HERE.rows = None
    told = first_text(group.texts(reason))
    return (None, told or "ranks do not compute the same in it") if told or form is None else (form, "")


def _end(group: RankGroup, exchange: Together) -> bool:
    """Tell the others how a trial has ended here; return whether it has ended so everywhere."""
    try:
        group.meet(exchange)
    except PeerFailed:
        return False
    return True


def _compared(
    call: Call, plan: RowPlan, whole: WholeOutcome, ways: tuple[Callable[..., Any], ...], exact: bool, group: RankGroup
) -> CutForm:
    cut, join = ways
    copied, leaves = copied_call(call, exact)
    held, asked = kept_values(copied), HERE.asked
    put_outside_back, counts = call.watched(), written_counts(copied)
    try:
        result = cut(copied, leaves, call.structure, plan)
    finally:
        outside = put_outside_back()
    if outside or result.wrote:
        raise NotEqual(outside or "it writes to its arguments")
    refuse_written_parameters(call, copied, leaves, counts)
    if HERE.asked > asked and is_compiled(call.module, list(call.module.modules())):
        raise NotEqual("it is compiled, and draws random numbers or normalizes by its batch")
    kept = since(held, copied)
    for name in [*kept, *whole.kept]:
        if not same_kept(kept.get(name, []), whole.kept.get(name, [])):
            raise NotEqual(f"it keeps what it computes of a batch in its attribute {name}")
    if not whole.has_structure(result.structure):
        raise NotEqual("its results have another structure for a part of a batch")
    streams = taken(call.generators)
    total = plan.rows([tuple(leaf.shape) if _is_tensor(leaf) else None for leaf in leaves])
    own = (total // group.size) + (group.rank < total % group.size)
    dims = [_dim(one, part, total, own) for one, part in zip(whole.leaves, result.parts, strict=True)]
    joined = join(result, dims)
    _same("results", joined, whole.leaves, exact)
    if not same_streams(streams, whole.streams):
        raise NotEqual("it draws random numbers by rows in a way that has no whole batch")
    _same("buffers", list(copied.buffers()), whole.buffers, exact)
    found = _averaged(gradients(copied, leaves, joined), whole.gradients, wanted_gradients(copied, leaves), group)
    if whole.has_gradients:
        _same("gradients", found, whole.gradients, exact)
    depths = tuple(part.dim() if _is_tensor(part) else None for part in result.parts)
    return CutForm(plan, tuple(dims), result.structure, depths)


def _dim(whole: Any, part: Any, total: int, own: int) -> Dim:
    if not _is_tensor(whole):
        return None
    if not _is_tensor(part):
        raise NotEqual("its results have another structure for a part of a batch")
    try:
        return joined_dim(tuple(whole.shape), tuple(part.shape), total, own)
    except ValueError as error:
        raise NotEqual(str(error)) from None


def _averaged(own: list[Any], whole: list[Any], wanted: list[Any], group: RankGroup) -> list[Any]:
    """Return the means over all ranks, where gradients of what is `wanted` are no shares of them already."""
    found = []
    for one, of, like in zip(own, whole, wanted if own else (), strict=True):
        if of is None or is_sharded(like):
            if of is None and one is not None:
                raise NotEqual("its gradients for a part of a batch are others")
            found.append(one)
            continue
        one = torch.zeros_like(like) if one is None else one.detach().clone(memory_format=torch.contiguous_format)
        group.average(one.view(-1))
        found.append(one)
    return found


# -- equality -------------------------------------------------------------------------------------------------------


def _same(what: str, found: Sequence[Any], wanted: Sequence[Any], exact: bool) -> None:
    """Raise where values differ by more than rounding."""
    floats = [one for one in wanted if _is_tensor(one) and (one.is_floating_point() or one.is_complex())]
    largest = max((_largest(one) for one in floats), default=0.0) if what == "gradients" else 0.0
    for one, of in zip(found, wanted, strict=True):
        if not _is_tensor(of) or not _is_tensor(one):
            if one != of:
                raise NotEqual(f"its {what} for a part of a batch are others")
            continue
        if not (of.is_floating_point() or of.is_complex()):
            if not torch.equal(one, of):
                raise NotEqual(f"its {what} for a part of a batch are others")
            continue
        limit = _EXACT if exact else _ROUNDED.get(of.dtype, _COARSE)
        apart = _largest(one.detach() - of)
        if not apart <= limit * max(_largest(of), _SMALL * largest, 1e-12):
            share = apart / max(_largest(of), 1e-300)
            raise NotEqual(f"rows of its batch depend on each other: {what} differ by {share:.1e} of the largest")


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]
