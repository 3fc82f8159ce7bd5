"""Copies between host and device, and places where the host waits for the device."""

from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Protocol

import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import SYNC, TRANSFER

__all__ = ["CopySink", "DeviceWatch"]

_WAITS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__")
_FETCHES = ("tolist", "cpu")  # of these, what copies a whole tensor


class CopySink(Protocol):
    """Where a deep run collects copies and waits."""

    def copied(self, source: Any, result: Any, nanoseconds: int, blocking: bool) -> None:
        """Take one copy from host to device."""

    def fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `original`, a method that copies a tensor back to the host, so that the sink sees the copy."""

    def waited(self, operation: str, nanoseconds: int) -> None:
        """Take one wait of the host for the device."""


def _on_device(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu")


def _to_device(original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | None:
    """Return whether `.to` or `.cuda` is asked for a tensor on a device; None where no place is asked for."""
    if getattr(original, "__name__", "") == "cuda":
        return True
    target = kwargs.get("device", args[0] if args else kwargs.get("tensor"))
    if target is None or isinstance(target, torch.dtype):
        return None
    if isinstance(target, torch.Tensor | torch.device):
        return (target.device if isinstance(target, torch.Tensor) else target).type != "cpu"
    return not str(target).startswith("cpu")


def _compile_never(function: Any) -> None:
    """Have Dynamo trace through `function` in code that it compiles, and not compile `function` for itself.

    For itself, `numpy` would be a graph and then a call of `numpy`, which Dynamo writes there: of itself, without end.
    """
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        plain = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(function.__code__, plain)
    else:  # of earlier versions of torch
        frames.skip_code(function.__code__)


class DeviceWatch:
    """Charges copies to `transfer` and waits to `sync`; on a machine without accelerator nothing is installed."""

    def __init__(self, event_log: EventLog, sink: CopySink | None, *, everywhere: bool = False) -> None:
        """Take the tape, and the deep run's sink when there is one; `everywhere`: on machines without one too."""
        self._event_log = event_log
        self._everywhere = everywhere
        self._sink = sink

    def install(self, seams: Seams) -> None:
        """Wrap the tensor methods that copy or wait, where torch was built for an accelerator."""
        built = torch.backends.cuda.is_built() or torch.backends.mps.is_built()
        if not (built or self._everywhere):
            return
        seams.wrap("torch:Tensor.to", self._copy)
        seams.wrap("torch:Tensor.cuda", self._copy)
        for name in _WAITS:
            seams.wrap(f"torch:Tensor.{name}", self._wait)
        seams.wrap("torch.cuda:synchronize", self._synchronize)
        if self._sink is not None:
            seams.wrap("torch.cuda:empty_cache", self._empty_cache)

    def _copy(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, events, sink = self._event_log, self._event_log.events, self._sink
        watched = original if sink is None else sink.fetching(original)  # never for Dynamo to trace

        def copy(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or get_ident() != event_log.thread:
                return original(tensor, *args, **kwargs)
            from_device = _on_device(tensor)
            if _to_device(original, args, kwargs) in (None, from_device):  # another type or layout, where it is
                return original(tensor, *args, **kwargs)
            event_log.record((events.enter[SYNC if from_device else TRANSFER], event_log.now()))
            start = perf_counter_ns()
            try:
                result = watched(tensor, *args, **kwargs)
            finally:
                event_log.record((events.leave, event_log.now()))
            if not from_device and _on_device(result):
                hits.count += 1
                if sink is not None:
                    sink.copied(tensor, result, perf_counter_ns() - start, not kwargs.get("non_blocking", False))
            return result

        return copy

    def _wait(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, events, sink = self._event_log, self._event_log.events, self._sink
        name = getattr(original, "__name__", "item")
        watched = sink.fetching(original) if sink is not None and name in _FETCHES else original

        def wait(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or not _on_device(tensor) or get_ident() != event_log.thread:
                return original(tensor, *args, **kwargs)
            hits.count += 1
            start = perf_counter_ns()
            event_log.record((events.enter[SYNC], event_log.now()))
            try:
                return watched(tensor, *args, **kwargs)
            finally:
                event_log.record((events.leave, event_log.now()))
                if sink is not None:
                    sink.waited(name, perf_counter_ns() - start)

        _compile_never(wait)
        return wait

    def _synchronize(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, events, sink = self._event_log, self._event_log.events, self._sink

        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != event_log.thread:
                return original(*args, **kwargs)
            hits.count += 1
            start = perf_counter_ns()
            event_log.record((events.enter[SYNC], event_log.now()))
            try:
                return original(*args, **kwargs)
            finally:
                event_log.record((events.leave, event_log.now()))
                if sink is not None:
                    sink.waited("torch.cuda.synchronize", perf_counter_ns() - start)

        return synchronize

    def _empty_cache(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        """In a deep run only: what it costs a step shows in the account as the host's own time."""
        event_log, sink = self._event_log, self._sink

        def empty_cache() -> None:
            start = perf_counter_ns()
            original()
            hits.count += 1
            if sink is not None and get_ident() == event_log.thread:
                sink.waited("torch.cuda.empty_cache", perf_counter_ns() - start)

        return empty_cache
