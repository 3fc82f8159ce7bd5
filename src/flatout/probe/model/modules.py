"""The outermost modules of a training: found once it runs, hooked from outside, never inside.

Hooks on inner modules break `torch.compile` (measured on torch 2.13: one graph becomes three); a call around the object
that the script itself calls does not. So modules are looked up after the first optimizer step, through the parameters
that the optimizer holds; one that is never called is replaced by its children. Modules with other parameters (a
teacher, a frozen encoder, an average of the weights) are hooked too, but never descended into. The module itself holds
nothing of it (`probe.calls`): Module keeps its fast path, and a copy, however it is made, runs its own code.
"""

import gc
import weakref
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.loader.loading import batch_size, tensors_in
from flatout.probe.model.compilations import optimized_module
from flatout.probe.model.module_calls import OwnCalls
from flatout.schema.run import Frame, ModelFacts

__all__ = ["ModuleWatch"]

_MAX_HOOKED = {True: 64, False: 32}  # trained modules, others
_LOOKED_AT = 3  # calls whose inputs are looked at

_Around = Callable[[Any, Callable[..., Any]], Callable[..., Any]]


class _Hooked:
    """One hooked module, held weakly: it must die when the script lets it go."""

    def __init__(self, module: Any, trained: bool) -> None:
        self.ref = weakref.ref(module)
        self.trained = trained
        self.calls = 0
        self.input_dtypes: tuple[str, ...] = ()

    @property
    def module(self) -> Any:
        return self.ref()


class RootSearch:
    """Finds the modules over parameters that no other module contains."""

    def __init__(self) -> None:
        """Nothing was looked for yet."""
        self._seen: set[int] = set()  # parameters
        self._remembered: list[weakref.ref[Any]] = []

    def install(self, seams: Seams) -> None:
        """Wrap `gc.freeze`, which hides objects: the modules among them are remembered first."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def freeze() -> None:
                hits.count += 1
                self._remembered = [weakref.ref(module) for module in _modules()]
                original()

            return freeze

        seams.wrap("gc:freeze", make)

    def find(self, parameters: set[int]) -> list[tuple[Any, bool]]:
        """Return the roots, those over `parameters` first and marked True; none where all of these were seen before."""
        fresh = parameters - self._seen
        if not fresh:
            return []
        self._seen |= fresh
        return _roots(fresh, [ref() for ref in self._remembered])


class ModuleWatch:
    """Finds and hooks the modules whose call is the forward pass."""

    def __init__(self, event_log: EventLog) -> None:
        """Hook nothing yet."""
        self._event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._hooked: list[_Hooked] = []
        self.calls = OwnCalls()
        self._search = RootSearch()
        self.batch_sizes: list[int] = []
        self.on_forward: Callable[[], None] | None = None  # deep run
        self.on_call: Callable[[Any, Any], None] | None = None  # verification: sees the module and its arguments
        self.around: list[_Around] = []  # what fixes put in between, where the training's gradients are made
        self.around_always: list[_Around] = []  # the same, at every call of an outermost module
        self.on_root: list[Callable[[Any], None]] = []  # who wants to know of every trained outermost module
        self.blind = False  # no module is ever hooked: what shows whether hooking changes the training

    # -- finding ------------------------------------------------------------------------------------------------

    @guarded
    def look(self, parameters: set[int], *, descend: bool = True) -> None:
        """Hook the roots over `parameters` (ids of the optimizer's tensors); descend where a hook was never passed."""
        if self.blind:
            return
        self._hooked = [hooked for hooked in self._hooked if hooked.module is not None]
        self.calls.forget_gone()
        for hooked in [item for item in self._hooked if descend and item.trained and item.calls == 0]:
            module = hooked.module
            if isinstance(module, torch.nn.DataParallel):  # its children's replicas run on threads of its own
                continue
            self.calls.take(module)
            self._hooked.remove(hooked)
            for child in filter(_has_parameters, module.children()):
                self._hook(child, trained=True)
        for module, trained in self._search.find(parameters):
            self._hook(module, trained=trained)

    def install(self, seams: Seams) -> None:
        """Wrap what hides modules."""
        self._search.install(seams)

    def unhook(self) -> None:
        """Remove all hooks, for good or until `rehook`."""
        self.calls.undo()

    def rehook(self) -> None:
        """Hook again what `unhook` left bare."""
        for hooked in self._hooked:
            if hooked.module is not None:
                self._attach(hooked)

    def _hook(self, module: Any, *, trained: bool) -> None:
        for hooked in self._hooked:
            if hooked.module is module:
                if trained and not hooked.trained:
                    hooked.trained = True
                    self._tell(module)
                return
        if sum(hooked.trained is trained for hooked in self._hooked) >= _MAX_HOOKED[trained]:
            return
        hooked = _Hooked(module, trained)
        self._hooked.append(hooked)
        self._attach(hooked)
        if trained:
            self._tell(module)

    def _tell(self, module: Any) -> None:
        for told in self.on_root:
            told(module)

    def roots(self) -> list[Any]:
        """Return the outermost modules that are trained, as far as they are known."""
        return [hooked.module for hooked in self._hooked if hooked.trained and hooked.module is not None]

    def _attach(self, hooked: _Hooked) -> None:
        ref, event_log, tracing = hooked.ref, self._event_log, self._event_log.tracing
        record, now = event_log.record, event_log.now
        beneath = self.calls.beneath(hooked.module)
        begins, ends = event_log.events.forward.begins, event_log.events.forward.ends
        plain, acting = event_log.events.forward.plain_ends, event_log.events.forward.acting_ends

        def call(*args: Any, **kwargs: Any) -> Any:
            module: Any = ref()  # alive: it is being called
            inner = beneath(module) or module._call_impl
            if (tracing.possible and is_dynamo_compiling()) or event_log.fetching or get_ident() != event_log.thread:
                return inner(*args, **kwargs)  # in a data set it is part of the input
            if hooked.calls < _LOOKED_AT:
                self._look_at(hooked, args or tuple(kwargs.values()))
            hooked.calls += 1
            if self.on_forward is not None:
                self.on_forward()
            if self.on_call is not None:
                self.on_call(module, (args, kwargs))
            record((begins, now()))
            try:
                if self.around and hooked.trained and module.training and torch.is_grad_enabled():
                    for around in self.around:
                        inner = around(module, inner)
                for around in self.around_always:
                    inner = around(module, inner)
                return inner(*args, **kwargs)
            finally:
                record((ends if torch.is_grad_enabled() else acting if module.training else plain, now()))

        self.calls.put(hooked.module, call)

    # -- events -------------------------------------------------------------------------------------------------

    @guarded
    def _look_at(self, hooked: _Hooked, args: Any) -> None:
        tensors = list(tensors_in(args))
        hooked.input_dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
        self.batch_sizes.append(batch_size(args))

    def compiled_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, a compiled function, so that its calls from host code count as forward passes."""
        event_log, tracing = self._event_log, self._event_log.tracing
        begins, ends = event_log.events.forward.function_begins, event_log.events.forward.function_ends

        def call(*args: Any, **kwargs: Any) -> Any:
            if (tracing.possible and is_dynamo_compiling()) or event_log.fetching or get_ident() != event_log.thread:
                return function(*args, **kwargs)
            if self.on_forward is not None:
                self.on_forward()
            event_log.record((begins, event_log.now()))
            try:
                return function(*args, **kwargs)
            finally:
                event_log.record((ends, event_log.now()))

        return call

    # -- facts --------------------------------------------------------------------------------------------------

    def modules(self) -> list[Any]:
        """Return the hooked modules that were called."""
        return [hooked.module for hooked in self._hooked if hooked.calls and hooked.module is not None]

    def describe(self, anomaly: tuple[float, int, Frame | None] = (0.0, 0, None)) -> tuple[ModelFacts, ...]:
        """Return what is known of each outermost module that was called; `anomaly`: of detecting anomalies."""
        called = [hooked for hooked in self._hooked if hooked.calls and hooked.module is not None]
        return tuple(_facts(hooked, *anomaly) for hooked in called)


def _modules() -> list[Any]:
    """Return every module that the garbage collector knows of."""
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        if torch.nn.Module in getattr(kind, "__mro__", ()) and "_parameters" in getattr(thing, "__dict__", ()):
            found.append(thing)
    return found


def _roots(parameters: set[int], remembered: list[Any]) -> list[tuple[Any, bool]]:
    """Return the modules with parameters that no other one contains, those over `parameters` first and marked True."""
    known = _modules()
    ids = {id(module) for module in known}
    holders = known + [module for module in remembered if module is not None and id(module) not in ids]
    inner = {id(child) for module in holders for child in module.modules() if child is not module}
    roots = [module for module in holders if id(module) not in inner and _has_parameters(module)]
    trained = {id(module) for module in roots if any(id(p) in parameters for p in module.parameters())}
    return sorted(((module, id(module) in trained) for module in roots), key=lambda root: not root[1])


def _has_parameters(module: Any) -> bool:
    return any(True for _ in module.parameters())


def _replicas(module: Any) -> int:
    return max(1, len(module.device_ids)) if isinstance(module, torch.nn.DataParallel) else 1


def _dtypes(parameters: Iterable[Any]) -> tuple[str, ...]:
    """Return the types of all parameters, that of most bytes first."""
    num_bytes: dict[str, int] = {}
    for parameter in parameters:
        name = str(parameter.dtype).removeprefix("torch.")
        num_bytes[name] = num_bytes.get(name, 0) + parameter.numel() * parameter.element_size()
    return tuple(sorted(num_bytes, key=lambda name: (-num_bytes[name], name)))


def _facts(hooked: _Hooked, anomaly_share: float, anomaly_steps: int, anomaly_at: Frame | None) -> ModelFacts:
    module = hooked.module
    parameters = list(module.parameters())
    kinds: dict[str, int] = {}
    for inner in module.modules():
        if not any(True for _ in inner.children()):
            kinds[type(inner).__name__] = kinds.get(type(inner).__name__, 0) + 1
    compiled = isinstance(module, optimized_module()) or vars(module).get("_compiled_call_impl") is not None
    return ModelFacts(
        name=type(module).__name__,
        num_parameters=len(parameters),
        num_elements=sum(parameter.numel() for parameter in parameters),
        dtypes=_dtypes(parameters),
        input_dtypes=hooked.input_dtypes,
        compiled=compiled,
        replicas=_replicas(module),
        module_types=kinds,
        anomaly_share=anomaly_share,
        anomaly_steps=anomaly_steps,
        anomaly_at=anomaly_at,
    )
