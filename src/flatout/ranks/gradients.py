"""Gradients of one process from those of all ranks: averaged once a backward pass is over.

A pass leads from the loss back to the cut calls that it was computed from, and their parameters are those that got
gradients of some rows only. On the way nothing may have been computed from a rank's rows that is no result of a call:
it would be another number on each rank.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_ident
from time import perf_counter
from typing import Any, NoReturn

import torch
from torch._C._autograd import _get_sequence_nr

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.exchanged import Mean, Tie, applied
from flatout.ranks.group import RankGroup
from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.sharding import backward_pass, is_sharded

__all__ = ["LocalSpans", "exchange_gradients", "ties_of"]

_MOST_SPANS = 10_000
_LEAK = (
    "hands out something by other ways than its results (an attribute, a list, a hook), and the loss is computed from"
    " it: each rank has that of its own rows only"
)


class LocalSpans:
    """Which nodes of the graph were made inside of cut calls, by torch's numbers of nodes."""

    def __init__(self) -> None:
        """Know of none."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._modules: list[str] = []

    def now(self) -> int:
        """Return the number that the next node gets."""
        return _get_sequence_nr()

    def note(self, begin: int, end: int, module: str) -> None:
        """Take down a call of `module` that has made the nodes from `begin` to before `end`."""
        if end <= begin:
            return
        if len(self._begins) >= _MOST_SPANS:
            half = _MOST_SPANS // 2
            del self._begins[:half], self._ends[:half], self._modules[:half]
        self._begins.append(begin)
        self._ends.append(end)
        self._modules.append(module)

    def module_of(self, number: int) -> str:
        """Return the module in whose call the node of that number was made, "" where it was outside."""
        at = bisect.bisect_right(self._begins, number) - 1
        return self._modules[at] if at >= 0 and number < self._ends[at] else ""


def ties_of(tensors: Iterable[Any], spans: LocalSpans) -> tuple[list[Tie], str]:
    """Return the cut calls that `tensors` were computed from, and the module of one that handed something out else."""
    waiting, seen, found = list(_nodes(tensors)), set(), dict[int, Tie]()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        ties = getattr(node, "ties", None)
        if ties is not None:
            fresh = [tie for tie in ties if id(tie) not in found]
            found |= {id(tie): tie for tie in fresh}
            waiting += [before for tie in fresh for before in tie.before]
            continue
        module = spans.module_of(node._sequence_nr())
        if module:
            return [], module
        waiting += [one for one, _ in node.next_functions if one is not None]
    return list(found.values()), ""


def _nodes(tensors: Iterable[Any]) -> Iterator[Any]:
    for tensor in tensors:
        node = getattr(tensor, "grad_fn", None) or getattr(tensor, "node", None)
        if node is not None:
            yield node


def exchange_gradients(
    seams: Seams, group: RankGroup, spans: LocalSpans, account: RankAccount, stop: Callable[[str], NoReturn]
) -> None:
    """Let `backward` and `torch.autograd.grad` give the gradients of one process."""

    def found(outputs: Any) -> list[Tie]:
        ties, module = ties_of(_sequence(outputs), spans)
        if module:
            stop(f"{module} {_LEAK}")
        return ties

    def make_backward(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if _passes_by():
                original(tensors, *args, **kwargs)
                return
            hits.count += 1
            ties = found(tensors)
            _in_backward(original, ties, tensors, *args, **kwargs)
            if ties:
                begin = perf_counter()
                _average_leaves(_parameters(ties), ties, group)
                account.took("gradients", perf_counter() - begin)

        return backward

    def make_grad(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if _passes_by():
                return original(outputs, inputs, *args, **kwargs)
            hits.count += 1
            ties = found(outputs)
            results = _in_backward(original, ties, outputs, inputs, *args, **kwargs)
            return _averaged(results, inputs, ties, group) if ties else results

        return grad

    seams.wrap("torch.autograd:backward", make_backward)
    seams.wrap("torch.autograd:grad", make_grad)


def _passes_by() -> bool:
    """Return whether a pass is part of a call, of another pass, or of another thread's work."""
    return HERE.inside or HERE.backward > 0 or get_ident() != HERE.main


def _in_backward(original: Callable[..., Any], ties: Sequence[Tie], *args: Any, **kwargs: Any) -> Any:
    HERE.backward += 1
    try:
        with backward_pass([tie.module for tie in ties]):
            return original(*args, **kwargs)
    finally:
        HERE.backward -= 1
        HERE.rows = None


def _sequence(tensors: Any) -> Sequence[Any]:
    return tuple(tensors) if isinstance(tensors, (list, tuple)) else (tensors,)


def _parameters(ties: Iterable[Tie]) -> list[Any]:
    """Return the parameters of the calls' modules that get gradients, each once."""
    modules = {id(tie.module): tie.module for tie in ties}.values()
    return list({id(one): one for module in modules for one in module.parameters() if _is_averaged(one)}.values())


def _is_averaged(parameter: Any) -> bool:
    """Return whether the gradient of a parameter is averaged here, and not where ranks keep shares of it."""
    return bool(parameter.requires_grad) and not is_sharded(parameter)


def _average_leaves(parameters: Sequence[Any], ties: Sequence[Tie], group: RankGroup) -> None:
    """Average the gradients of parameters in place; one that no rank has stays None."""
    if any(one.grad is not None and one.grad.requires_grad for one in parameters):  # `create_graph`
        for one in parameters:
            one.grad = applied(Mean, one.grad if one.grad is not None else torch.zeros_like(one), tuple(ties))
        return
    kinds: dict[Any, list[Any]] = {}
    for one in parameters:
        kinds.setdefault((one.device, one.dtype), []).append(one)
    with torch.no_grad():
        for same in kinds.values():
            _average_alike(same, group)


def _average_alike(parameters: Sequence[Any], group: RankGroup) -> None:
    """Average gradients of one device and type in one exchange, with a count of the ranks that have each."""
    own = [one.grad if one.grad is not None else torch.zeros_like(one) for one in parameters]
    there = torch.tensor([float(one.grad is not None) for one in parameters], dtype=own[0].dtype, device=own[0].device)
    alone = len({one.untyped_storage().data_ptr() for one in own}) == len(own)
    parts = [one.view(-1) if alone and one.is_contiguous() else one.reshape(-1).clone() for one in own]
    group.average_each([*parts, there])
    for parameter, grad, mean, shared in zip(parameters, own, parts, there.tolist(), strict=True):
        if shared:
            if mean.untyped_storage().data_ptr() != grad.untyped_storage().data_ptr():
                grad.copy_(mean.view(grad.shape))
            parameter.grad = grad


def _averaged(results: Any, inputs: Any, ties: Sequence[Tie], group: RankGroup) -> Any:
    """Return the mean over all ranks of what `torch.autograd.grad` has returned, None where no rank has any."""
    if isinstance(results, dict):
        names = list(results)
        values = _averaged(tuple(results.values()), tuple(inputs[name] for name in names), ties, group)
        return dict(zip(names, values, strict=True))
    there = torch.tensor([one is not None for one in results], dtype=torch.uint8)
    anywhere = group.everywhere(there).amax(0).tolist()
    found = []
    for one, of, shared in zip(results, _sequence(inputs), anywhere, strict=True):
        own = one if one is not None or not shared else torch.zeros_like(of)
        found.append(None if own is None else applied(Mean, own, tuple(ties)))
    return tuple(found)
