"""A call of a module, tried on copies: whether ranks that compute their rows get what one process gets.

Outputs, gradients of all parameters and arguments, buffers and the positions of random streams are compared with those
of the whole call, in float64 where the module runs in it. The module itself is called once, after that.
"""

import contextlib
import copy
import io
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import backward as _backward  # as torch has it: without what ranks make of it
from torch.utils._pytree import tree_flatten

from flatout.ranks.fitness import is_compiled, settings, written_out
from flatout.ranks.group import PeerFailed, RankGroup, Together
from flatout.ranks.kept_values import Kept, kept_values, same_kept, since
from flatout.ranks.local_rows import HERE
from flatout.ranks.named_values import NamedValues
from flatout.ranks.rows import Dim, RowPlan, candidates, joined_dim
from flatout.ranks.sharded.sharding import backward_pass, is_sharded, share_of_gradient
from flatout.ranks.streams import put_back, same_streams, taken

__all__ = ["Call", "CutForm", "CutResult", "NotTried", "prove"]

_EXACT = 1e-7  # relative difference in float64
_ROUNDED = {torch.float32: 2e-3}
_COARSE = 5e-2  # of types with fewer bits
_SMALL = 1e-3  # of the largest gradient: what is below it is rounding of what cancels
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class CutForm:
    """How one kind of call is cut, and how its results are joined."""

    plan: RowPlan
    results: tuple[Dim, ...]
    structure: Any


@dataclass(slots=True)
class Call:
    """A module with the arguments of one call, as leaves of a tree."""

    module: Any
    leaves: list[Any]
    structure: Any


@dataclass(frozen=True, slots=True)
class CutResult:
    """What a call with this rank's rows has given."""

    parts: list[Any]
    structure: Any
    tie: Any
    nodes: int = 0  # of the graph, that it has made


class NotTried(str):
    """Why a call cannot be tried on copies; whether its rows depend on each other is not known."""

    __slots__ = ()


@dataclass(slots=True)
class _Outcome:
    """What a call on a copy has given."""

    leaves: list[Any]
    structure: Any
    gradients: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    streams: tuple[Any, ...] = ()
    kept: Kept = field(default_factory=dict)  # what attributes hold since then


class _Silence(io.StringIO):
    """What is printed during a trial, and not shown."""

    @property
    def has_heard(self) -> bool:
        return self.tell() > 0


class _NotEqual(Exception):
    """Rows computed by ranks give something else than one process; the text says what."""


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
    before, group.tried, silenced = taken(), True, logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)
        with contextlib.redirect_stdout(_Silence()):  # what the call says is said when it is made
            return _proven(call, run, (cut, join), plans, before, group)
    finally:
        logging.disable(silenced)
        group.tried = False
        put_back(before)


def _proven(
    call: Call,
    run: Callable[..., Any],
    ways: tuple[Callable[..., Any], ...],
    plans: list[RowPlan],
    before: tuple[Any, ...],
    group: RankGroup,
) -> CutForm | str:
    """Return what `prove` does, with the streams as they are `before` each trial."""
    whole, exact, reason = None, True, ""
    for exact in (True, False):
        whole, reason = _whole(call, run, exact, group)
        put_back(before)
        if not reason:
            break
    if whole is None or reason:
        return NotTried(reason)
    for plan in plans:
        form, failed = _tried(call, plan, whole, ways, exact, group)
        put_back(before)
        if form is not None:
            return form
        reason = reason or failed
    return reason


# -- the whole call -------------------------------------------------------------------------------------------------


def _whole(call: Call, run: Callable[..., Any], exact: bool, group: RankGroup) -> tuple[_Outcome | None, str]:
    """Return what the call gives on a copy, and why ranks cannot try it."""
    outcome, reason = None, ""
    HERE.whole = True
    try:
        outcome = _reference(call, run, exact)
    except _NotEqual as error:
        reason = str(error)
    except Exception as error:
        reason = f"it cannot be called on a copy ({_told(error)})"
    finally:
        HERE.whole = False
    return outcome, _first(group.texts(reason))


def _reference(call: Call, run: Callable[..., Any], exact: bool) -> _Outcome:
    copied, leaves = _copied(call, exact)
    versions = [leaf._version for leaf in leaves if _is_tensor(leaf) and not leaf.is_inference()]
    held, modules = kept_values(copied), list(copied.modules())
    before, put_back = settings(modules), NamedValues(list(call.module.modules())).kept()
    try:
        outcome = _Outcome(*tree_flatten(run(copied, leaves, call.structure)))
    finally:
        outside = put_back()
    outcome.kept = since(held, copied)
    if outside:
        raise _NotEqual(f"it writes to {outside} outside of it")
    if isinstance(sys.stdout, _Silence) and sys.stdout.has_heard:
        raise _NotEqual("it prints, perhaps what it computes of its batch")
    if versions != [leaf._version for leaf in leaves if _is_tensor(leaf) and not leaf.is_inference()]:
        raise _NotEqual("it writes to its arguments")
    changed = [name for name, value in settings(modules) if (name, value) not in before]
    if changed:
        raise _NotEqual(f"it changes its attribute {changed[0]} in each call, and may decide by it")
    strange = next((leaf for leaf in outcome.leaves if not isinstance(leaf, (torch.Tensor, *_PLAIN))), None)
    if strange is not None:
        raise _NotEqual(f"it returns a {type(strange).__name__}")
    if not any(map(_is_tensor, outcome.leaves)):
        raise _NotEqual("it returns no tensor")
    if _has_others(outcome.leaves, [*copied.parameters(), *filter(_is_tensor, leaves)]):
        raise _NotEqual("a tensor that is none of its parameters gets gradients in it")
    outcome.streams = taken()
    outcome.buffers = [each.detach().clone() for each in copied.buffers()]
    outcome.gradients = _gradients(copied, leaves, outcome.leaves)
    if not all(map(_is_finite, [*outcome.leaves, *outcome.gradients])):
        raise _NotEqual("its results are not finite")
    outcome.leaves = [leaf.detach() if _is_tensor(leaf) else leaf for leaf in outcome.leaves]
    return outcome


def _has_others(outputs: list[Any], known: list[Any]) -> bool:
    """Return whether gradients of `outputs` lead to tensors that are none of the `known` ones."""
    wanted = {id(one) for one in known}
    tensors = [one for one in outputs if _is_tensor(one) and one.requires_grad]
    if any(one.grad_fn is None and id(one) not in wanted for one in tensors):
        return True
    waiting, seen = [one.grad_fn for one in tensors if one.grad_fn is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of the nodes that add to `grad`
        if variable is not None and id(variable) not in wanted:
            return True
        waiting += [one for one, _ in node.next_functions if one is not None]
    return False


def _copied(call: Call, exact: bool) -> tuple[Any, list[Any]]:
    """Return copies of the module and of the arguments, in float64 where that is asked for."""
    copied = copy.deepcopy(written_out(call.module))
    if HERE.sharding is not None:
        HERE.sharding.tried(call.module, copied)
    for parameter in copied.parameters():
        parameter.grad = None
    if exact:
        copied.double()
    leaves = []
    for leaf in call.leaves:
        if _is_tensor(leaf):
            gradient = leaf.requires_grad
            leaf = leaf.detach().clone(memory_format=torch.preserve_format)
            if exact and leaf.is_floating_point():
                leaf = leaf.double()
            leaf.requires_grad_(gradient)
        leaves.append(leaf)
    return copied, leaves


def _gradients(copied: Any, leaves: list[Any], outputs: list[Any]) -> list[Any]:
    """Return the gradients of parameters and arguments, None where there is none, for the same random cotangents."""
    results = [leaf for leaf in outputs if _is_tensor(leaf) and leaf.requires_grad]
    wanted = _wanted(copied, leaves)
    if not results or not wanted:
        return []
    stream = torch.Generator().manual_seed(20_000_003)
    cotangents = [torch.empty(one.shape, dtype=torch.float64) for one in results]
    for one in cotangents:
        torch.normal(0.0, 1.0, one.shape, generator=stream, out=one)
    given = [one.to(dtype=of.dtype, device=of.device) for one, of in zip(cotangents, results, strict=True)]
    HERE.backward += 1
    try:
        with backward_pass([copied]):
            _backward(results, given)
        return [share_of_gradient(one) for one in wanted]
    finally:
        HERE.backward -= 1
        HERE.rows = None


def _wanted(copied: Any, leaves: list[Any]) -> list[Any]:
    return [one for one in (*copied.parameters(), *filter(_is_tensor, leaves)) if one.requires_grad]


# -- the call by rows -----------------------------------------------------------------------------------------------


def _tried(
    call: Call, plan: RowPlan, whole: _Outcome, ways: tuple[Callable[..., Any], ...], exact: bool, group: RankGroup
) -> tuple[CutForm | None, str]:
    """Return the form in which the call can be cut by `plan`, None and the reason where it cannot."""
    form, reason = None, ""
    try:
        form = _compared(call, plan, whole, ways, exact, group)
    except PeerFailed:
        pass
    except Exception as error:
        reason = str(error) if isinstance(error, _NotEqual) else f"it cannot compute a part of a batch ({_told(error)})"
        _end(group, Together.FAILED)
    else:
        form = form if _end(group, Together.DONE) else None
    finally:
        HERE.rows = None
    told = _first(group.texts(reason))
    return (None, told or "ranks do not compute the same in it") if told or form is None else (form, "")


def _end(group: RankGroup, exchange: Together) -> bool:
    """Tell the others how a trial has ended here; return whether it has ended so everywhere."""
    try:
        group.meet(exchange)
    except PeerFailed:
        return False
    return True


def _compared(
    call: Call, plan: RowPlan, whole: _Outcome, ways: tuple[Callable[..., Any], ...], exact: bool, group: RankGroup
) -> CutForm:
    cut, join = ways
    copied, leaves = _copied(call, exact)
    held, asked = kept_values(copied), HERE.asked
    result = cut(copied, leaves, call.structure, plan)
    if HERE.asked > asked and is_compiled(call.module, list(call.module.modules())):
        raise _NotEqual("it is compiled, and draws random numbers or normalizes by its batch")
    kept = since(held, copied)
    for name in [*kept, *whole.kept]:
        if not same_kept(kept.get(name, []), whole.kept.get(name, [])):
            raise _NotEqual(f"it keeps what it computes of a batch in its attribute {name}")
    if result.structure != whole.structure:
        raise _NotEqual("its results have another structure for a part of a batch")
    streams = taken()
    total = plan.rows([tuple(leaf.shape) if _is_tensor(leaf) else None for leaf in leaves])
    own = (total // group.size) + (group.rank < total % group.size)
    dims = [_dim(one, part, total, own) for one, part in zip(whole.leaves, result.parts, strict=True)]
    joined = join(result, dims)
    _same("results", joined, whole.leaves, exact)
    if not same_streams(streams, whole.streams):
        raise _NotEqual("it draws random numbers by rows in a way that has no whole batch")
    _same("buffers", list(copied.buffers()), whole.buffers, exact)
    averaged = [is_sharded(one) for one in _wanted(copied, leaves)]
    gradients = _averaged(_gradients(copied, leaves, joined), whole.gradients, averaged, group)
    _same("gradients", gradients, whole.gradients, exact)
    return CutForm(plan, tuple(dims), result.structure)


def _dim(whole: Any, part: Any, total: int, own: int) -> Dim:
    if not _is_tensor(whole):
        return None
    if not _is_tensor(part):
        raise _NotEqual("its results have another structure for a part of a batch")
    try:
        return joined_dim(tuple(whole.shape), tuple(part.shape), total, own)
    except ValueError as error:
        raise _NotEqual(str(error)) from None


def _averaged(own: list[Any], whole: list[Any], averaged: list[bool], group: RankGroup) -> list[Any]:
    """Return the means over all ranks, where gradients are not `averaged` shares of them."""
    found = []
    for one, of, done in zip(own, whole, averaged if own else (), strict=True):
        if of is None or done:
            found.append(one)
            continue
        one = torch.zeros_like(of) if one is None else one.detach().clone(memory_format=torch.contiguous_format)
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
                raise _NotEqual(f"its {what} for a part of a batch are others")
            continue
        if not (of.is_floating_point() or of.is_complex()):
            if not torch.equal(one, of):
                raise _NotEqual(f"its {what} for a part of a batch are others")
            continue
        limit = _EXACT if exact else _ROUNDED.get(of.dtype, _COARSE)
        apart = _largest(one.detach() - of)
        if not apart <= limit * max(_largest(of), _SMALL * largest, 1e-12):
            share = apart / max(_largest(of), 1e-300)
            raise _NotEqual(f"rows of its batch depend on each other: {what} differ by {share:.1e} of the largest")


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def _is_finite(value: Any) -> bool:
    return not _is_tensor(value) or not value.is_floating_point() or bool(torch.isfinite(value).all())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def _first(texts: Sequence[str]) -> str:
    return next((text for text in texts if text), "")
