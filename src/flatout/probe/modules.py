"""The outermost modules of a training: found once it runs, hooked from outside, never inside.

Hooks on inner modules break `torch.compile` (measured on torch 2.13: one graph becomes three); hooks on the object
that the script itself calls do not. So modules are looked up after the first optimizer step, through the parameters
that the optimizer holds; a hooked module that is never called is replaced by its children.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from flatout.probe.clock import DeviceClock
from flatout.probe.loading import batch_size, tensors_in
from flatout.probe.spans import FORWARD, LEAD, LOSS, TAIL, Account
from flatout.probe.steps import StepTracker
from flatout.schema.run import Frame, ModelFacts

__all__ = ["ModuleWatch"]

_MAX_HOOKED = 64


class _Hook:
    """A hook that copies as itself and leaves no trace in a pickle of the module."""

    def __init__(self, act: Callable[[Any, Any], None]) -> None:
        self._act = act

    def __call__(self, module: Any, args: Any, *_: Any) -> None:
        self._act(module, args)

    def __deepcopy__(self, memo: Any) -> "_Hook":
        return self

    def __copy__(self) -> "_Hook":
        return self

    def __reduce__(self) -> Any:
        return _no_hook, ()


def _no_hook() -> Callable[..., None]:
    """Return a hook that does nothing: what a pickled module gets in place of ours."""
    return _nothing


def _nothing(*_: Any) -> None:
    return None


class _Hooked:
    """One hooked module."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls = 0
        self.handles: list[Any] = []
        self.input_dtypes: tuple[str, ...] = ()
        self.dict_before: Callable[..., Any] | None = None

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        if self.dict_before is not None:
            self.module._compiled_call_impl = self.dict_before


class ModuleWatch:
    """Finds and hooks the modules whose call is the forward pass."""

    def __init__(self, account: Account, tracker: StepTracker) -> None:
        """Hook nothing yet."""
        self._account = account
        self._tracker = tracker
        self.device: DeviceClock | None = None
        self._hooked: list[_Hooked] = []
        self._depth = 0
        self._before, self._after = _Hook(self._enter), _Hook(self._leave)
        self._seen_parameters: set[int] = set()
        self.compiled_functions = 0
        self.batch_sizes: list[int] = []
        self.on_forward: Callable[[], None] | None = None  # deep run
        self.anomaly: tuple[float, int, Frame | None] = (0.0, 0, None)

    # -- finding ------------------------------------------------------------------------------------------------

    def look(self, parameters: set[int]) -> None:
        """Hook the roots over `parameters` (ids of the optimizer's tensors); descend where a hook was never passed."""
        for hooked in [item for item in self._hooked if item.calls == 0]:
            hooked.remove()
            self._hooked.remove(hooked)
            for child in hooked.module.children():
                self._hook(child)
        fresh = parameters - self._seen_parameters
        if fresh and not self.compiled_functions:
            self._seen_parameters |= fresh
            for module in _roots(fresh):
                self._hook(module)

    def settled(self) -> bool:
        """Return whether every hooked module has been called."""
        return bool(self._hooked) and all(hooked.calls for hooked in self._hooked)

    def unhook(self) -> list[Any]:
        """Remove all hooks for a moment and return the modules, for `rehook`."""
        modules = [hooked.module for hooked in self._hooked]
        for hooked in self._hooked:
            hooked.remove()
        return modules

    def rehook(self) -> None:
        """Hook again what `unhook` left bare."""
        for hooked in self._hooked:
            self._attach(hooked)

    def _hook(self, module: Any) -> None:
        if len(self._hooked) >= _MAX_HOOKED or any(hooked.module is module for hooked in self._hooked):
            return
        hooked = _Hooked(module)
        self._hooked.append(hooked)
        self._attach(hooked)

    def _attach(self, hooked: _Hooked) -> None:
        module = hooked.module
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is not None and not isinstance(module, _optimized()):  # Module.compile(): a hook would be traced
            hooked.dict_before = compiled

            def call(*args: Any, **kwargs: Any) -> Any:
                self._enter(module, args)
                try:
                    return compiled(*args, **kwargs)
                finally:
                    self._leave(module, args)

            module._compiled_call_impl = call
            return
        try:
            hooked.handles = [
                module.register_forward_pre_hook(self._before, prepend=True),
                module.register_forward_hook(self._after, always_call=True),
            ]
        except Exception:  # scripted and exotic modules take no hooks: their time stays with the host
            hooked.handles = []

    # -- events -------------------------------------------------------------------------------------------------

    def _enter(self, module: Any, args: Any) -> None:
        if torch.compiler.is_compiling() or get_ident() != self._account.thread:
            return
        for hooked in self._hooked:
            if hooked.module is module:
                hooked.calls += 1
                if hooked.calls <= 3:
                    hooked.input_dtypes = tuple(
                        str(tensor.dtype).removeprefix("torch.") for tensor in tensors_in(args)
                    )
                    self.batch_sizes.append(batch_size(args))
                break
        if self.on_forward is not None:
            self.on_forward()
        self._account.enter(FORWARD)
        self._depth += 1
        if self.device is not None:
            self.device.begin(0)

    def _leave(self, module: Any, args: Any) -> None:
        if torch.compiler.is_compiling() or get_ident() != self._account.thread or not self._depth:
            return
        self._depth -= 1
        grad = torch.is_grad_enabled()
        self._account.leave(LOSS if grad else -1)
        if self.device is not None:
            self.device.finish()
        self._tracker.forward_done(grad)

    def compiled_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, a compiled function, so that its calls from host code count as forward passes."""
        account = self._account
        self.compiled_functions += 1

        def call(*args: Any, **kwargs: Any) -> Any:
            outermost = account.current in (LEAD, LOSS, TAIL)
            if torch.compiler.is_compiling() or get_ident() != account.thread or not outermost:
                return function(*args, **kwargs)
            account.enter(FORWARD)
            try:
                return function(*args, **kwargs)
            finally:
                account.leave(LOSS if torch.is_grad_enabled() else -1)
                self._tracker.forward_done(torch.is_grad_enabled())

        return call

    # -- facts --------------------------------------------------------------------------------------------------

    def modules(self) -> list[Any]:
        """Return the hooked modules that were called."""
        return [hooked.module for hooked in self._hooked if hooked.calls]

    def describe(self) -> tuple[ModelFacts, ...]:
        """Return what is known of each outermost module that was called."""
        return tuple(_facts(hooked, *self.anomaly) for hooked in self._hooked if hooked.calls)


def _optimized() -> type:
    return torch._dynamo.eval_frame.OptimizedModule if "torch._dynamo" in sys.modules else _Never


class _Never:
    """No object is an instance of this."""


def _roots(parameters: set[int]) -> Iterator[Any]:
    """Yield the modules over `parameters` that no other such module contains."""
    holders = []
    for thing in gc.get_objects():
        kind = type(thing)
        if torch.nn.Module in getattr(kind, "__mro__", ()) and "_parameters" in getattr(thing, "__dict__", ()):
            holders.append(thing)
    owning = [module for module in holders if any(id(p) in parameters for p in module.parameters())]
    inner = {id(child) for module in owning for child in module.modules() if child is not module}
    for module in owning:
        if id(module) not in inner:
            yield module


def _facts(hooked: _Hooked, anomaly_share: float, anomaly_steps: int, anomaly_at: Frame | None) -> ModelFacts:
    module = hooked.module
    parameters = list(module.parameters())
    kinds: dict[str, int] = {}
    for inner in module.modules():
        if not any(True for _ in inner.children()):
            kinds[type(inner).__name__] = kinds.get(type(inner).__name__, 0) + 1
    compiled = isinstance(module, _optimized()) or getattr(module, "_compiled_call_impl", None) is not None
    return ModelFacts(
        name=type(module).__name__,
        num_parameters=len(parameters),
        num_elements=sum(parameter.numel() for parameter in parameters),
        dtypes=tuple(sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})),
        input_dtypes=hooked.input_dtypes,
        compiled=compiled,
        module_types=kinds,
        anomaly_share=anomaly_share,
        anomaly_steps=anomaly_steps,
        anomaly_at=anomaly_at,
    )
