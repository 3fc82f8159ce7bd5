"""Passes whose batches come on a device, one ahead of the script where that draws nothing earlier than it would."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from flatout.pipeline.device.begun_batches import BegunBatches
from flatout.pipeline.device.device_stream import DeviceStream
from flatout.pipeline.device.resident_rows import ResidentRows
from flatout.pipeline.serve.loader_server import LoaderServer
from flatout.torch_loader.served_pass import ServedPass

__all__ = ["Begun", "DevicePass", "begin_ahead", "draws_nothing"]


def draws_nothing(walked: Any, cache: LoaderServer) -> Callable[[], bool]:
    """Return what says whether the next batch of `walked`, which `cache` gave, may be made earlier than asked for.

    That is where all samples are kept and the order is drawn at the start: there a batch draws nothing.
    """
    known = isinstance(walked, ServedPass) and walked.may_draw_ahead

    def may() -> bool:
        compiler = cache.kept_rows.compiler
        return known and cache.kept_rows.full and not cache.reason and (compiler is None or not compiler.random)

    return may


class DevicePass:
    """An iterator over what another one gives, brought to the device. Errors come at their batch.

    Nothing in it holds the pass itself: pinned memory that a process forked later finds in a circle and frees there
    ends that process (seen on an H200: a loader worker, aborted).
    """

    def __init__(self, inner: Any, device: DeviceStream, cache: LoaderServer) -> None:
        """Walk `inner`, which `cache` gave."""
        self._inner, self._device, self._cache = inner, device, cache
        if isinstance(inner, ServedPass):
            inner.leave_to_device(_resident(cache))
        self._ahead = BegunBatches(partial(_taken, inner, device, cache), draws_nothing(inner, cache))

    def __iter__(self) -> "DevicePass":
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        taken = self._ahead.next()
        if taken.indices is not None and not self._cache.stands():  # begun before something changed
            return self._device.hand_out(self._device.bring(self._cache.as_plain(taken.indices)), self._device.event())
        return self._device.hand_out(taken.batch, taken.event)


class _Taken(NamedTuple):
    """A batch on a device, there after `event`; `indices`: what it was made of, where that was what is kept."""

    batch: Any
    event: Any
    indices: Any


def _taken(inner: Any, device: DeviceStream, cache: LoaderServer) -> _Taken:
    batch = next(inner)
    indices = inner.latest if isinstance(inner, ServedPass) and cache.stands() else None
    return _Taken(device.bring(batch), device.event(), indices)


def _resident(cache: LoaderServer) -> bool:
    return isinstance(cache.kept_rows, ResidentRows) and cache.kept_rows.resident and cache.kept_rows.full


class Begun(NamedTuple):
    """A batch on a device, there after `event`; `again()` gathers it anew, None where more than that would be done."""

    batch: Any
    event: Any
    again: Callable[[], Any] | None
    indices: Any = None


def begin_ahead(walked: ServedPass, device: DeviceStream, cache: LoaderServer, change: Callable[[Begun], Any]) -> None:
    """Let `walked` give what `change` makes of its batches; each is begun one batch ahead if may be."""
    weak = weakref.ref(walked)

    def take() -> Begun:
        alive: Any = weak()  # held by whoever asks
        batch, kept_rows = alive.next_batch(), cache.kept_rows
        again = None
        if isinstance(kept_rows, ResidentRows) and not cache.reason and alive.latest is not None:
            again = kept_rows.again(alive.latest)
        indices = alive.latest if cache.stands() else None
        return Begun(batch, device.event(), again, indices)

    def give() -> Any:
        begun = ahead.next()
        if begun.indices is not None and not cache.stands():  # begun before something changed
            begun = Begun(cache.as_plain(begun.indices), device.event(), None)
        return change(begun)

    walked.leave_to_device(_resident(cache))
    ahead = BegunBatches(take, draws_nothing(walked, cache))
    walked.give_by(give)
