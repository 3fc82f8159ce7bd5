"""Steps of torch's optimizers in one pass by compiled code, where it gives the bits that torch's loop gives.

torch's function is the definition, and what is used is proven against it: once for each combination of settings with
tensors made for it, where it comes out which sums this build of torch fuses with a product, and again with parts of the
script's own tensors, at the first steps and every now and then. What cannot be shown is torch's own to do.
"""

import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from flatout.optimizers import _steps as compiled
from flatout.optimizers.kinds import Lists, OptimizerStep

__all__ = ["OnePass", "Prepared", "stands_for"]

Prepared = tuple[list[int], int]
"""Addresses and numbers of elements, and which sums are fused: for one step, as long as no tensor moves."""

_TORCHS = {
    "amsgrad": "amsgrad is set",
    "capturable": "capturable is set",
    "differentiable": "differentiable is set",
    "has_complex": "a parameter is complex",
    "has_sparse_grad": "gradients are sparse",
}
"""Settings whose steps torch keeps, in words."""
_COUNTERS = (0.0, 1.0, 998.0)  # steps made before those of a proof
_CHECKED_FIRST, _CHECKED_EACH = 2, 1000  # steps that are held against torch's with the script's own tensors
_CHECKED_ELEMENTS = 4096  # of each tensor
_MOST_PROVEN = 16  # combinations of settings, some 10 ms each: where a schedule makes new ones, steps are torch's then
_PLAIN = (Tensor, torch.nn.Parameter)
_LENT = compiled.take_exchange(getattr(Tensor, "__dlpack_c_exchange_api__", None))
"""Whether compiled code can look at tensors by itself, in place of some eight calls from Python for each."""
_standing: list[tuple["weakref.ref[Any]", Callable[..., Any]]] = []  # what was put before what, of ours
_names: dict[tuple[str, str], frozenset[str]] = {}  # by module and name of the function
_FLOAT = torch.float32


def stands_for(function: Any) -> Callable[..., Any] | None:
    """Return what `function` was put before, if it is one of ours."""
    return next((original for known, original in _standing if known() is function), None)


def _undermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is left when all of ours are taken away: one may stand before another, whose bits are not torch's."""
    under = stands_for(function)
    return function if under is None else _undermost(under)


class OnePass:
    """Stands for one function of torch: makes its steps by compiled code where that is proven, else lets it."""

    def __init__(
        self,
        original: Callable[..., Any],
        step: OptimizerStep,
        acted: Callable[[], None],
        left: Callable[[str], None] | None = None,
    ) -> None:
        """Prove nothing yet; `acted` is called after each step made here, `left` once, with why one is torch's."""
        self._left = left
        self._latest: list[int] = []  # what was told last
        self.original = original
        self._called = (original.__module__, original.__name__)
        self._step, self._acted = step, acted
        self._way: int | None = None  # of all settings; none yet, or -1 where there is none
        self._ways: dict[tuple[Any, ...], int | None] = {}
        self._made = 0

    def __call__(self, *lists: Any, **settings: Any) -> Any:
        """Make one step, as torch's function does."""
        if torch.compiler.is_dynamo_compiling():
            return self.original(*lists, **settings)
        if not self.names:
            _names[self._called] = frozenset(settings)
        prepared = self.prepared(lists, settings)
        if prepared is None or not self.carry_out(prepared, lists, settings):
            if self._left is not None:
                self._left(self._why(lists, settings))
                self._left = None
            return self.original(*lists, **settings)
        return None

    def now_stands(self, wrapper: Callable[..., Any]) -> None:
        """Say that `wrapper` leads here, and has been put before the original."""
        _standing[:] = [each for each in _standing if each[0]() is not None]
        _standing.append((weakref.ref(wrapper), self.original))

    @property
    def names(self) -> frozenset[str]:
        """Return what torch calls the settings that it gives; nothing before it has called its function."""
        return _names.get(self._called, frozenset())

    def prepared(self, lists: Lists, settings: dict[str, Any]) -> Prepared | None:
        """Return what the compiled code is told of a step that is proven; None where it is torch's to make."""
        step = self._step
        if len(lists) != step.lists or not lists[0] or _observed():
            return None
        key = step.key(lists, settings)
        if key is None or self._ways.get(key, 0) is None:
            return None
        told = self._told(lists, settings)
        if told is None:
            return None
        if key not in self._ways:
            if len(self._ways) >= _MOST_PROVEN:
                return None
            self._ways[key] = self._proven_way(settings)
        elif self._is_due() and not self._holds(lists, settings, self._ways[key]):
            self._ways[key] = None
        way = self._ways[key]
        return None if way is None else (told, way)

    def _why(self, lists: Lists, settings: dict[str, Any]) -> str:
        """Return why a step is torch's to make."""
        if _observed():
            return "operations are watched, changed or recorded while it steps"
        told = [why for name, why in _TORCHS.items() if settings.get(name)]
        if told:
            return " and ".join(told)
        if settings.get("momentum") == 0:
            return "SGD without momentum has one operation for each tensor already"
        key = self._step.key(lists, settings)
        if key is None:
            return "one of its settings is a tensor, or a moment that is not there yet"
        if self._ways.get(key, 0) is None:
            return "this build of torch gives other bits for its settings"
        odd = {str(each.dtype).removeprefix("torch.") for each in lists[0]} - {"float32"} if lists else set()
        return f"its weights are {' and '.join(sorted(odd))}" if odd else "its tensors do not lie in plain memory"

    def carry_out(self, prepared: Prepared, lists: Lists, settings: dict[str, Any]) -> bool:
        """Make the step; False, and nothing done, where memory overlaps or small numbers count as zero."""
        told, way = prepared
        if not self._step.carry_out(told, settings, way):
            return False
        self._made += 1
        _note_written([*lists[0], *chain(*self._step.moments(lists, settings)), *self._step.counters(lists)])
        self._acted()
        return True

    def _told(self, lists: Lists, settings: dict[str, Any]) -> list[int] | None:
        """Return what the compiled code is told of the script's tensors; None where memory is not plain.

        Tensors of inference mode are looked for where something is not where it was.
        """
        weights, gradients, moments = lists[0], lists[1], self._step.moments(lists, settings)
        counters = self._step.counters(lists)
        if not _LENT:
            return _told(weights, gradients, moments, counters)
        told = compiled.look((weights, gradients, *moments), counters, _PLAIN)
        if told is None or any(map(Tensor.is_neg, chain(*lists))):
            return None
        if told != self._latest:
            if any(map(Tensor.is_inference, chain(*lists))):
                return None
            self._latest = told
        return told

    def _is_due(self) -> bool:
        return self._made < _CHECKED_FIRST or self._made % _CHECKED_EACH == 0

    def _proven_way(self, settings: dict[str, Any]) -> int | None:
        """Return the way of this build of torch; None where these settings do not come out so."""
        if compiled.flush(torch.get_num_threads()):
            return None
        if self._way is None:
            ways = self._proven(self._step.ways, self._step.telling(settings))
            self._way = ways[0] if ways else -1
        return next(iter(self._proven([self._way], settings)), None) if self._way >= 0 else None

    def _proven(self, ways: Sequence[int], settings: dict[str, Any]) -> Sequence[int]:
        """Return the ways that give the bits of torch's function."""
        for counter in _COUNTERS:
            tensors = self._step.scratch(torch.Generator(device="cpu").manual_seed(int(counter)), counter)
            ways = [way for way in ways if self._same(tensors, settings, way)]
        return ways

    def _holds(self, lists: Lists, settings: dict[str, Any], way: int | None) -> bool:
        """Tell whether parts of the script's own tensors come out as torch's function has them."""
        if compiled.flush(torch.get_num_threads()):
            return False
        parts = [[_part(each, self._made * _CHECKED_ELEMENTS) for each in tensors] for tensors in lists]
        return way is not None and self._same(parts, settings, way)

    def _same(self, lists: Lists, settings: dict[str, Any], way: int) -> bool:
        theirs, ours = ([[each.clone() for each in tensors] for tensors in lists] for _ in range(2))
        _undermost(self.original)(*theirs, **settings)
        step = self._step
        told = _told(ours[0], ours[1], step.moments(ours, settings), step.counters(ours))
        if told is None or not step.carry_out(told, settings, way):
            return False
        return all(map(_same_bits, chain(*ours), chain(*theirs)))


def _told(weights: list[Any], gradients: list[Any], moments: Lists, counters: list[Any]) -> list[int] | None:
    """Return addresses and numbers of elements, a column after the other; None where memory is not plain.

    All is looked at each time: a script may put other memory under a tensor between two steps, at the same place even.
    """
    numbers = [*weights, *gradients, *chain(*moments)]
    if not {*map(type, numbers), *map(type, counters)} <= {*_PLAIN}:
        return None
    try:
        shapes = [each.shape for each in weights]
        if not _are_plain(numbers) or any([each.shape for each in some] != shapes for some in (gradients, *moments)):
            return None
        if counters and not (_are_plain(counters) and all(each.numel() == 1 for each in counters)):
            return None
        sizes = [each.numel() for each in weights]
        addresses = [each.data_ptr() for each in (*numbers, *counters)]
    except RuntimeError:  # a tensor without memory of its own
        return None
    if 0 in addresses and any(each.numel() and not each.data_ptr() for each in (*numbers, *counters)):
        return None  # the memory is another tensor's, which stands behind this one
    number = 2 * len(weights)
    return [*addresses[:number], *sizes, *addresses[number:]]


def _are_plain(tensors: list[Tensor]) -> bool:
    """Tell whether these are numbers of single precision in the host's memory, one after the other."""
    if not all(map(Tensor.is_contiguous, tensors)) or any(map(Tensor.is_neg, tensors)):  # raises for sparse ones
        return False
    if {each.dtype for each in tensors} != {_FLOAT} or not all(each.is_cpu for each in tensors):
        return False
    return not any(map(Tensor.is_inference, tensors))


def _observed() -> bool:
    """Tell whether operations are watched or changed here, or recorded: then they must be torch's."""
    if torch.is_grad_enabled() or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return True
    if torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0:
        return True
    return torch._C._get_tracing_state() is not None


def _note_written(tensors: list[Tensor]) -> None:
    """Tell autograd that the tensors are no longer what they were, as operations in place do."""
    try:
        increment_version(tensors)
    except (AttributeError, TypeError):  # before torch 2.6: one at a time
        for each in tensors:
            increment_version(each)


def _part(tensor: Tensor, place: int) -> Tensor:
    """Return some of the elements, others at each place."""
    flat = tensor.detach().reshape(-1)
    start = place % max(1, flat.numel() - _CHECKED_ELEMENTS + 1)
    return flat[start : start + _CHECKED_ELEMENTS] if tensor.dim() else tensor.detach()


def _same_bits(one: Tensor, other: Tensor) -> bool:
    both_none = one.isnan() & other.isnan()
    return bool(((one.view(torch.int32) == other.view(torch.int32)) | both_none).all())
