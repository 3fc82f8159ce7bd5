"""The whole call on a copy: what one process gets, which calls by rows are held against.

On one machine one rank makes it, with the cores of all, and hands on what the others compare with. Results and
gradients have the same bits on all ranks once they are exchanged, so that one rank has to look at gradients. Where a
call may leave something behind that nobody sees, every rank makes it: then the same is left on each.
"""

import contextlib
import copy
import io
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import set_num_threads as _set_num_threads  # as torch has it: ranks share the cores
from torch.autograd import backward as _backward  # as torch has it: without what ranks make of it
from torch.utils._pytree import tree_flatten

from flatout.machine import usable_cores
from flatout.ranks.fitness import settings, written_out
from flatout.ranks.group import RankGroup
from flatout.ranks.held_state import HeldState, same_tensors
from flatout.ranks.kept_values import Kept, kept_values, since
from flatout.ranks.local_rows import HERE
from flatout.ranks.named_values import NamedValues, is_foreign, is_own
from flatout.ranks.outside_state import all_is_seen
from flatout.ranks.sharded.sharding import backward_pass, share_of_gradient
from flatout.ranks.streams import taken

__all__ = [
    "Call",
    "NotEqual",
    "Silence",
    "WholeOutcome",
    "copied_call",
    "first_text",
    "gradients",
    "refuse_written_parameters",
    "wanted_gradients",
    "whole_call",
    "written_counts",
]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_ELSEWHERE = object()  # a gradient that the leading rank compares


@dataclass(slots=True)
class Call:
    """A module with the arguments of one call, as leaves of a tree."""

    module: Any
    leaves: list[Any]
    structure: Any
    args: tuple[Any, ...] = ()  # as the script gives them
    kwargs: dict[str, Any] = field(default_factory=dict)
    named: NamedValues | None = None  # values that its code names
    generators: list[Any] = field(default_factory=list)  # of random numbers, that it may draw from

    def watched(self) -> Callable[[], str]:
        """Return what puts back whatever was written outside of the module, and says what that was, "" for nothing."""
        self.named = self.named or NamedValues(list(self.module.modules()))
        named, objects = self.named.kept(), HeldState(self.objects, is_own)

        def put_back() -> str:
            outside, given = named(), objects.put_back()
            told = f"it writes to {outside} outside of it" if outside else ""
            return told or (given and "it writes to its arguments")

        return put_back

    @property
    def objects(self) -> list[Any]:
        """Arguments that are neither tensors nor plain values."""
        return [leaf for leaf in self.leaves if not isinstance(leaf, (torch.Tensor, *_PLAIN))]


@dataclass(slots=True)
class WholeOutcome:
    """What the whole call has given."""

    leaves: list[Any]
    structure: Any
    gradients: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    streams: tuple[Any, ...] = ()
    kept: Kept = field(default_factory=dict)  # what attributes hold since then
    words: str = ""  # of the structure, where another rank has made the call

    @property
    def has_gradients(self) -> bool:
        """Whether gradients are here to be compared, and not on the leading rank alone."""
        return all(one is not _ELSEWHERE for one in self.gradients)

    def has_structure(self, structure: Any) -> bool:
        """Return whether results are of this structure."""
        return repr(structure) == self.words if self.words else bool(structure == self.structure)


class Silence(io.StringIO):
    """What is printed during a trial, and not shown; warnings go to `warned`, since Python gives each of them once."""

    def __init__(self, warned: Any = None) -> None:
        """Have heard nothing."""
        super().__init__()
        self._warned = warned

    def write(self, text: str, /) -> int:
        """Take a text down."""
        warns = self._warned is not None and sys._getframe(1).f_globals.get("__name__") == "warnings"
        return int(self._warned.write(text)) if warns else super().write(text)

    @property
    def has_heard(self) -> bool:
        """Whether anything was printed."""
        return self.tell() > 0


class NotEqual(Exception):
    """Rows computed by ranks give something else than one process; the text says what."""


def whole_call(call: Call, run: Callable[..., Any], exact: bool, group: RankGroup) -> tuple[WholeOutcome | None, str]:
    """Return what the call gives on a copy, and why ranks cannot try it."""
    if not _one_for_all(call, group):
        outcome, reason = _outcome(call, run, exact)
        return outcome, first_text(group.texts(reason))
    outcome, reason = None, ""
    if group.rank == 0:
        with _all_cores(group):
            outcome, reason = _outcome(call, run, exact)
    reason = first_text(group.texts(reason))
    if reason:
        return None, reason
    found = _handed_on(outcome, group)
    if found is None:  # it cannot be
        outcome, reason = (outcome, "") if group.rank == 0 else _outcome(call, run, exact)
        return outcome, first_text(group.texts(reason))
    return found, ""


def _outcome(call: Call, run: Callable[..., Any], exact: bool) -> tuple[WholeOutcome | None, str]:
    HERE.whole = True
    try:
        return _reference(call, run, exact), ""
    except NotEqual as error:
        return None, str(error)
    except Exception as error:
        return None, f"it cannot be called on a copy ({type(error).__name__}: {error})".splitlines()[0][:200]
    finally:
        HERE.whole = False


def _reference(call: Call, run: Callable[..., Any], exact: bool) -> WholeOutcome:
    if call.named is not None and call.named.iterator:
        raise NotEqual(f"its code names the iterator {call.named.iterator}, of which a trial would take")
    copied, leaves = copied_call(call, exact)
    versions = [leaf._version for leaf in leaves if _is_tensor(leaf) and not leaf.is_inference()]
    held, modules = kept_values(copied), list(copied.modules())
    before, put_back, counts = settings(modules), call.watched(), written_counts(copied)
    logging.disable(logging.CRITICAL)  # loggers take down anew what they are asked
    try:
        outcome = WholeOutcome(*tree_flatten(run(copied, leaves, call.structure)))
    finally:
        outside = put_back()
    outcome.kept = since(held, copied)
    if outside:
        raise NotEqual(outside)
    if any(isinstance(one, Silence) and one.has_heard for one in (sys.stdout, sys.stderr)) or _has_logged():
        raise NotEqual("it prints or logs, perhaps what it computes of its batch")
    if versions != [leaf._version for leaf in leaves if _is_tensor(leaf) and not leaf.is_inference()]:
        raise NotEqual("it writes to its arguments")
    changed = [name for name, value in settings(modules) if (name, value) not in before]
    if changed:
        raise NotEqual(f"it changes its attribute {changed[0]} in each call, and may decide by it")
    refuse_written_parameters(call, copied, leaves, counts)
    strange = next((leaf for leaf in outcome.leaves if not isinstance(leaf, (torch.Tensor, *_PLAIN))), None)
    if strange is not None:
        raise NotEqual(f"it returns a {type(strange).__name__}")
    if not any(map(_is_tensor, outcome.leaves)):
        raise NotEqual("it returns no tensor")
    if _has_others(outcome.leaves, [*copied.parameters(), *filter(_is_tensor, leaves)]):
        raise NotEqual("a tensor that is none of its parameters gets gradients in it")
    outcome.streams = taken(call.generators)
    outcome.buffers = [each.detach().clone() for each in copied.buffers()]
    outcome.gradients = gradients(copied, leaves, outcome.leaves)
    if not all(map(_is_finite, [*outcome.leaves, *outcome.gradients])):
        raise NotEqual("its results are not finite")
    outcome.leaves = [leaf.detach() if _is_tensor(leaf) else leaf for leaf in outcome.leaves]
    return outcome


def written_counts(module: Any) -> list[int]:
    """Return how often each parameter was written to, whatever that has changed."""
    return [0 if one.is_inference() else one._version for one in module.parameters()]


def refuse_written_parameters(call: Call, copied: Any, leaves: Sequence[Any], counts: Sequence[int]) -> None:
    """Raise where the call of a copy has written to parameters, or computed gradients; `counts`: those before it."""
    if HERE.sharding is not None:
        return
    now = dict(copied.named_parameters())
    before = dict(written_out(call.module).named_parameters())
    if counts != written_counts(copied):
        raise NotEqual("it writes to its parameters")
    for name, one in now.items():
        of = before.get(name)
        if of is None or one.shape != of.shape or not same_tensors(one.detach(), of.detach().to(one.dtype)):
            raise NotEqual(f"it writes to its parameter {name}")
    if any(one.grad is not None for one in (*now.values(), *filter(_is_tensor, leaves)) if one.is_leaf):
        raise NotEqual("it calls backward itself")


def _has_logged() -> bool:
    """Return whether a logger of the script was asked for what it would have shown."""
    found: list[Any] = [logging.root, *list(logging.root.manager.loggerDict.values())]
    loggers = [one for one in found if isinstance(one, logging.Logger) and not is_foreign(one.name)]
    tables = [(one, table) for one in loggers if not one.disabled for table in vars(one).values()]
    asked = ((one, level) for one, table in tables if type(table) is dict for level in tuple(table))
    return any(level >= one.getEffectiveLevel() for one, level in asked)


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


# -- copies ---------------------------------------------------------------------------------------------------------


def copied_call(call: Call, exact: bool) -> tuple[Any, list[Any]]:
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


def gradients(copied: Any, leaves: list[Any], outputs: list[Any]) -> list[Any]:
    """Return the gradients of parameters and arguments, None where there is none, for the same random cotangents."""
    results = [leaf for leaf in outputs if _is_tensor(leaf) and leaf.requires_grad]
    wanted = wanted_gradients(copied, leaves)
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


def wanted_gradients(copied: Any, leaves: list[Any]) -> list[Any]:
    """Return the parameters and arguments that gradients are compared of."""
    return [one for one in (*copied.parameters(), *filter(_is_tensor, leaves)) if one.requires_grad]


# -- one rank for all -----------------------------------------------------------------------------------------------


def _one_for_all(call: Call, group: RankGroup) -> bool:
    """Return whether one rank makes the call for all; they have to agree that they can."""
    if not group.shares_memory or group.size == 1 or HERE.sharding is not None:
        return False
    modules = list(call.module.modules())
    tensors = [*call.module.parameters(), *call.module.buffers(), *filter(_is_tensor, call.leaves)]
    named = call.named or NamedValues(modules)
    can = all(one.device.type == "cpu" for one in tensors) and not call.objects and named.are_all
    can = can and all_is_seen(modules)
    return bool(group.everywhere(torch.tensor([int(can)])).all())


@contextlib.contextmanager
def _all_cores(group: RankGroup) -> Iterator[None]:
    """Compute with the threads of all ranks, which wait meanwhile."""
    own = torch.get_num_threads()
    _set_num_threads(max(own, min(own * group.size, usable_cores())))
    try:
        yield
    finally:
        _set_num_threads(own)


def _handed_on(outcome: WholeOutcome | None, group: RankGroup) -> WholeOutcome | None:
    """Return what the leading rank has found, on all ranks; None where it cannot be handed on."""
    head = _head(outcome) if outcome is not None else b""
    (length,) = group.everywhere(torch.tensor([len(head)]))[0].tolist()
    if not length:
        return None
    sent = torch.frombuffer(bytearray(head), dtype=torch.uint8) if head else torch.empty(length, dtype=torch.uint8)
    group.hand_on(sent)
    if outcome is not None:
        for one in filter(_is_tensor, (*outcome.leaves, *outcome.buffers)):
            group.hand_on(torch.empty(one.shape, dtype=one.dtype).copy_(one).view(-1))
        return outcome
    leaves, buffers, known, streams, kept, words = pickle.loads(sent.numpy().tobytes())
    found = WholeOutcome([_received(one, group) for one in leaves], None, streams=streams, kept=kept, words=words)
    found.buffers = [_received(one, group) for one in buffers]
    found.gradients = [_ELSEWHERE if there else None for there in known]
    return found


@dataclass(frozen=True, slots=True)
class _Form:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _head(outcome: WholeOutcome) -> bytes:
    """Return what was found but for the values of tensors, nothing where there are some that are not plain ones."""
    tensors = [one for one in (*outcome.leaves, *outcome.buffers) if _is_tensor(one)]
    if any(type(one) is not torch.Tensor or one.layout is not torch.strided or one.is_quantized for one in tensors):
        return b""
    leaves, buffers = _forms(outcome.leaves), _forms(outcome.buffers)
    known = [one is not None for one in outcome.gradients]
    kept = {name: [_plain(one) for one in held] for name, held in outcome.kept.items()}
    return pickle.dumps((leaves, buffers, known, outcome.streams, kept, repr(outcome.structure)))


def _forms(values: Sequence[Any]) -> list[Any]:
    return [_Form(tuple(one.shape), one.dtype) if _is_tensor(one) else one for one in values]


def _plain(value: Any) -> Any:
    """Return a value without what has led to it."""
    return value.detach().clone().requires_grad_(value.requires_grad) if _is_tensor(value) else value


def _received(form: Any, group: RankGroup) -> Any:
    if not isinstance(form, _Form):
        return form
    found = torch.empty(form.shape, dtype=form.dtype)
    group.hand_on(found.view(-1))
    return found


def first_text(texts: Sequence[str]) -> str:
    """Return the first text that says something."""
    return next((text for text in texts if text), "")


def _is_finite(value: Any) -> bool:
    return not _is_tensor(value) or not value.is_floating_point() or bool(torch.isfinite(value).all())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
