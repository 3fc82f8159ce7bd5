"""A module that learns nothing, and the outputs of the rows that it was given before.

A call whose outputs are kept is watched from inside: it may do nothing but compute. All that the module is made of,
weights included, is watched by its memory, so that a change is seen before the next call. Batches of the same rows in
the same order come from memory at once; others once batches mixed from rows of two have come out to the last bit as
their rows did, and as long as none comes out otherwise.
"""

import os
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from flatout.kept.call_key import settings_now, unusual_moment
from flatout.kept.kept_result import Unkeepable
from flatout.kept.observed_call import observe
from flatout.kept.reports import Reports
from flatout.kept.row_outputs import Fits, RowOutputs, RowsGiven, mixed, rows_given, tensors_of
from flatout.probe.model.module_calls import slots_of
from flatout.watch.ambient import Ambient
from flatout.watch.dataset_state import same
from flatout.watch.main_thread import off_main_thread
from flatout.watch.memory.object_graph import available
from flatout.watch.memory.object_kinds import POINTERS
from flatout.watch.state_watch import StateWatch

__all__ = ["KeptModule", "is_hooked"]

_PACKAGES = ("torch.nn", "torch.autograd", "torch.amp", "torchvision", "timm")  # whose modules only compute
_PLAIN = (bool, int, str, bytes, type(None))
_DECIDING = ("_local_scalar_dense", "nonzero", "aten.equal", "unique", "masked_select")
_MIXED = 3  # batches of one form that must come out as their rows did
_MOST_FORMS = 4  # of which the last batch is held
_MOST_CHANGES, _MOST_MISSED = 8, 32
_WORTH = 0.33  # of a call, at most, for the digests of its rows


class _Known:
    """What is kept of a module in one state of its modes."""

    def __init__(self, name: str, module: Any, fits: Fits) -> None:
        self.outputs = RowOutputs(fits)
        self.mixed: Counter[object] = Counter()
        """Of each form, batches that came out as their rows did; -1: one did not, or may go another way for others."""
        self.latest: OrderedDict[object, Any] = OrderedDict()  # of each form, the batch that was computed last, copied
        self.unwatched: list[str] = []
        self._name, self._ref = name, weakref.ref(module)
        self._begin()

    def _begin(self) -> None:
        """Watch the module as it is now."""
        module = self._ref()
        self._watch = StateWatch([(self._name, module)], lambda: slots_of(module), files="passed")
        self._attributes = _attributes(module)
        graph = self._watch.graph
        generators = ["a random generator of its own"] if graph.met.generators else []
        self.unwatched = [*graph.unwatched, *(graph.opaque - POINTERS), *generators]

    def changed(self) -> str:
        """Return what the module is made of otherwise by now, in words; an empty string for nothing."""
        what = self._watch.look_deep() if self._watch.unseen else self._watch.look()
        if not what:
            return ""
        module: Any = self._ref()  # alive: it is being called
        inner = [*module.modules()]
        elsewhere = self._watch.left_behind({*map(id, inner), *(id(vars(one)) for one in inner)})
        if elsewhere or _attributes(module) != self._attributes:
            return what
        self._begin()  # attributes were set to what they had been, as `module.train()` does
        return self.unwatched[0] if self.unwatched else ""


@dataclass
class _SoFar:
    """What came of the calls of a module."""

    served: int = 0
    changes: int = 0
    missed: int = 0  # batches of known rows that are not put together
    full: bool = False


class KeptModule:
    """Answers calls of one module from memory where that is known to be right; makes them everywhere else."""

    def __init__(self, module: Any, name: str, reports: Reports, acted: Callable[[], None], fits: Fits) -> None:
        """Keep nothing yet; `acted` is told of each call that was answered, `fits` gives memory."""
        self.off = False
        self._is_compiling = torch.compiler.is_compiling
        self._ref, self._name, self._reports, self._acted, self._fits = weakref.ref(module), name, reports, acted, fits
        self._known: dict[object, _Known] = {}
        self._ambient: Ambient | None = None
        self._so_far = _SoFar()
        self._plain_s: float | None = None
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (known := forked()) and known())

    def _forked(self) -> None:
        self.off = True

    @property
    def _module(self) -> Any:
        return self._ref()  # alive: it is being called

    def call(self, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what `inner`, the module's own call, gives."""
        if self._is_compiling() or self.off or off_main_thread() or unusual_moment() or not self._is_frozen():
            return inner(*args, **kwargs)
        if self._plain_s is None:
            return self._first(inner, args, kwargs)
        given = rows_given(args, kwargs)
        if given is None:
            self.stop("it is given something that cannot be told by its contents, or has gradients")
            return inner(*args, **kwargs)
        known = self._known_now(given)
        if known is None:
            return inner(*args, **kwargs)
        given = RowsGiven((settings_now(), *given.form), given.keys)
        agreed = known.mixed[given.form]
        if known.outputs.knows_whole(given) or (agreed >= _MIXED and known.outputs.knows(given)):
            return self._answered(known, given, inner, args, kwargs)
        if self._so_far.full:
            return inner(*args, **kwargs)
        self._so_far.missed += agreed < 0 and known.outputs.knows(given)
        if self._so_far.missed > _MOST_MISSED * (1 + self._so_far.served):
            self.stop("a row depends on the rest of its batch, and batches are put together in another way each time")
            return inner(*args, **kwargs)
        return self._computed(known, given, inner, args, kwargs)

    def _is_frozen(self) -> bool:
        """Return whether no gradient reaches the module's weights, and settings are as they were."""
        self._ambient = self._ambient or Ambient(folder=False)
        learns = torch.is_grad_enabled() and any(one.requires_grad for one in self._module.parameters())
        return not learns and self._ambient.as_before()

    def _first(self, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Clock a call, and what telling its rows apart takes."""
        start = time.perf_counter()
        outputs = inner(*args, **kwargs)
        self._plain_s = time.perf_counter() - start
        rows_given(args, kwargs)
        if time.perf_counter() - start - self._plain_s > _WORTH * self._plain_s:
            self.stop("telling its rows apart takes longer than a third of a call")
        elif is_hooked(self._module):
            self.stop("the script hooks its calls")
        elif not available():
            self.stop("flatout's compiled code is missing here")
        return outputs

    def _known_now(self, given: RowsGiven) -> _Known | None:
        """Return what is kept of the module in its present modes, as far as it stands."""
        modes = tuple(one.training for one in self._module.modules())
        known = self._known.get(modes)
        if known is not None and (changed := known.changed()):
            del self._known[modes]
            known, self._so_far.changes = None, self._so_far.changes + 1
            if self._so_far.changes > _MOST_CHANGES:
                self.stop(f"{changed} changes between calls")
                return None
        if known is None:
            known = self._known[modes] = _Known(self._name, self._module, self._fits)
            if known.unwatched:
                self.stop(f"it holds {known.unwatched[0]}, which may change unseen")
                return None
        return known

    def stop(self, reason: str) -> None:
        """Answer nothing any more."""
        self.off = True
        self._known.clear()
        self._reports.left(f"{self._name}: {reason}")

    # -- a batch that is not known ------------------------------------------------------------------------------

    def _computed(self, known: _Known, given: RowsGiven, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a call and watch it; keep its outputs where nothing speaks against that."""
        seen = observe(inner, args, kwargs, packages=_PACKAGES)
        refused = seen.refused
        try:
            refused = refused or self._keep(known, given, seen.result, (args, kwargs))
            if not refused and 0 <= known.mixed[given.form] < _MIXED:
                self._try_mixed(known, given, inner, args, kwargs)
        except Unkeepable as error:
            refused = str(error)
        except Exception as error:  # tensors of any kind: the call itself was made
            refused = f"it cannot be watched ({type(error).__name__}: {error})"
        if refused:
            self.stop(refused)
        return seen.result

    def _keep(self, known: _Known, given: RowsGiven, outputs: Any, inputs: Any) -> str:
        again = rows_given(*inputs)
        if again is None or again.keys != given.keys:
            return "it writes to its input"
        if changed := known.changed():
            return f"a call changes {changed}"
        held = {one.untyped_storage().data_ptr() for one in _tensors_in(inputs)}
        held |= {one.untyped_storage().data_ptr() for one in (*self._module.parameters(), *self._module.buffers())}
        self._so_far.full = not known.outputs.add(given, outputs, held, whole=known.mixed[given.form] < _MIXED)
        return (
            "its outputs do not fit into memory, and none came back"
            if self._so_far.full and not self._so_far.served
            else ""
        )

    def _try_mixed(self, known: _Known, given: RowsGiven, inner: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Compute a batch mixed from this one and the one of its form before."""
        form, number = given.form, len(given.keys)
        latest = known.latest.pop(form, None)
        if len(known.latest) >= _MOST_FORMS:
            known.latest.popitem(last=False)
        known.latest[form] = _copied((args, kwargs))
        if latest is None or number < 2:
            return
        if not known.mixed[form] and _decides(inner, args, kwargs):
            known.mixed[form] = -1
            del known.latest[form]
            return
        some, named = mixed((args, kwargs), latest, number)
        rows = rows_given(some, named)
        if rows is None or rows.form != form[1:]:
            return
        wanted = RowsGiven(form, rows.keys)
        agrees = known.outputs.knows(wanted) and _same(known.outputs.make(wanted), inner(*some, **named))
        known.mixed[form] = known.mixed[form] + 1 if agrees else -1  # then only whole batches come from memory
        if known.mixed[form] in (-1, _MIXED):
            del known.latest[form]

    # -- a batch that is known ----------------------------------------------------------------------------------

    def _answered(self, known: _Known, given: RowsGiven, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            outputs = known.outputs.make(given)
        except Exception as error:  # out of memory
            self.stop(f"its outputs could not be copied ({type(error).__name__})")
            return inner(*args, **kwargs)
        if self._reports.pace.due:
            with self._reports.pace.proving():
                plain = inner(*args, **kwargs)
            if not _same(outputs, plain):
                self._differs()
            return plain
        self._so_far.served += 1
        self._acted()
        return outputs

    def _differs(self) -> None:
        """Say that calls were answered that may have been answered wrongly.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.off = True
        self._known.clear()
        reason = (
            f"{self._name} gave other outputs than were kept, after {self._so_far.served} calls answered from memory"
        )
        why = "What it gives for a row depends on the rest of the batch, or on something that flatout does not see."
        self._reports.wrong(reason, why, "kept-outputs")


def _attributes(module: Any) -> list[object]:
    """Return the attributes of a module and of those inside it: plain values, and the identities of all else."""
    return [
        (id(one), type(one), name, (type(value), value) if isinstance(value, _PLAIN) else id(value))
        for one in module.modules()
        for name, value in vars(one).items()
    ]


def is_hooked(module: Any) -> bool:
    """Return whether something is called around the calls of a module, or of one inside it."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(vars(one).get(name) for one in module.modules() for name in names)


def _decides(inner: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Return whether a call reads values of its tensors back, by which it may go another way for another batch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class ValueReads(TorchDispatchMode):
        """Notes operations whose outcome the code around them may go by."""

        def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            if any(part in str(function) for part in _DECIDING):
                found.append(str(function))
            return function(*given, **(named or {}))

    with ValueReads():  # type: ignore[no-untyped-call]
        inner(*args, **kwargs)
    return bool(found)


def _same(one: Any, other: Any) -> bool:
    try:
        left, right = tensors_of(one), tensors_of(other)
    except Unkeepable:
        return False
    return len(left) == len(right) and all(map(same, left, right))


def _tensors_in(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(each)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    return {key: _copied(each) for key, each in value.items()} if type(value) is dict else value
