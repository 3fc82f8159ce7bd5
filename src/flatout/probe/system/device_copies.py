"""Copies between host and device and waits for the device, by place: a deep run's own record of them.

What a copy holds is looked at, too: whether it is the same tensor as the time before, unchanged, and whether each of
its values is a byte, scaled and shifted. Both are done on the CPU's own copy, a few times for each place.
"""

import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import torch
from torch.cuda import synchronize as _synchronize  # before any probe has wrapped it

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import caller
from flatout.schema.run import Frame, SyncPoint, Transfer

__all__ = ["PROBE", "CopyWatch", "holds_bytes"]

_MOST_BYTES = 64 * 2**20  # a larger tensor is not read to see whether it is the same
_LARGE = 65_536  # values; with fewer of them, few different ones may be chance
_LOOKS = 3  # copies of one place whose values are looked at
_VALUES = 1 << 20  # of one channel that are looked at
_FEW_CHANNELS = 4
_OFF_GRID = 0.02  # of a step between two values: what rounding of float32 moves them by is a tenth of it
_SETTLES = 1 << 18  # bytes of a copy back before which the device's own work is waited for, so that it is not counted

_REMEMBERED = 256  # tensors of one place: the masks of as many layers

_Which = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, offset and strides, whose memory
_Key = tuple[str, Frame | None, str, bool, bool]


@dataclass(slots=True)
class _Cost:
    count: int = 0
    num_bytes: int = 0
    nanoseconds: int = 0
    repeats: int = 0
    looked: int = 0
    as_bytes: int = 0
    latest: "dict[_Which, _Sent]" = field(default_factory=dict)


@dataclass(slots=True)
class _Sent:
    """A tensor that was copied: which one, in which state."""

    base: weakref.ref[Any]
    version: int
    step: int
    checksum: int | None = None  # worked out once it has come a second time
    known: bool = False  # for one that comes again and again


class CopyWatch:
    """Adds up what `DeviceWatch` tells it."""

    def __init__(self, in_step: Callable[[], bool], trouble: Callable[[Exception], None]) -> None:
        """Take what says whether a step is under way, as copies back are counted there alone, and who gets errors."""
        self._in_step = in_step
        self.trouble = trouble
        self.counting = True  # off before the first step: a model moves to its device, and a context is made
        self._step = 0
        self._waits: dict[tuple[str, Frame | None], list[int]] = {}
        self._copies: dict[_Key, _Cost] = {}

    def step(self) -> None:
        """Take the end of a step."""
        self._step += 1

    @guarded
    def copied(self, source: Any, result: Any, nanoseconds: int, blocking: bool) -> None:
        """Take one copy from host to device."""
        if not self.counting:
            return
        dtype = str(source.dtype).removeprefix("torch.")
        key = ("to_device", caller(3), dtype, bool(source.is_pinned()), blocking)
        cost = self._add(key, source, nanoseconds)
        cost.repeats += _repeats(cost, source, self._step)
        if cost.looked < _LOOKS and source.is_floating_point() and source.numel() >= _LARGE:
            cost.looked += 1
            cost.as_bytes += holds_bytes(source)

    def fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `original`, a method that copies a tensor back to the host, so that the copy alone is timed."""
        always = getattr(original, "__name__", "") not in ("to", "cuda")

        def fetch(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            on_device = tensor.device.type == "cuda" and not kwargs.get("non_blocking") and self._in_step()
            if not (on_device and self.counting) or not (always or any(map(_is_host, (*args, *kwargs.values())))):
                return original(tensor, *args, **kwargs)
            if tensor.nbytes >= _SETTLES:
                _synchronize(tensor.device)
            start = perf_counter_ns()
            result = original(tensor, *args, **kwargs)
            self.fetched(tensor, perf_counter_ns() - start)
            return result

        return fetch

    @guarded
    def fetched(self, source: Any, nanoseconds: int) -> None:
        """Take one copy from device to host."""
        self._add(("to_host", caller(3), str(source.dtype).removeprefix("torch."), False, True), source, nanoseconds)

    def waited(self, operation: str, nanoseconds: int) -> None:
        """Take one wait of the host for the device."""
        if not self.counting:
            return
        cost = self._waits.setdefault((operation, caller(3)), [0, 0])
        cost[0] += 1
        cost[1] += nanoseconds

    def _add(self, key: _Key, source: Any, nanoseconds: int) -> _Cost:
        cost = self._copies.setdefault(key, _Cost())
        cost.count += 1
        cost.num_bytes += source.nbytes
        cost.nanoseconds += nanoseconds
        return cost

    def syncs(self) -> tuple[SyncPoint, ...]:
        """Return the waits by operation and place."""
        return tuple(
            SyncPoint(operation=operation, place=place, count=count, seconds=ns / 1e9)
            for (operation, place), (count, ns) in self._waits.items()
        )

    def transfers(self) -> tuple[Transfer, ...]:
        """Return the copies by direction, place and kind."""
        return tuple(
            Transfer(
                direction=direction,
                place=place,
                count=cost.count,
                num_bytes=cost.num_bytes,
                seconds=cost.nanoseconds / 1e9,
                dtype=dtype,
                pinned=pinned,
                blocking=blocking,
                repeats=cost.repeats,
                looked=cost.looked,
                as_bytes=cost.as_bytes,
            )
            for (direction, place, dtype, pinned, blocking), cost in self._copies.items()
        )


def _repeats(cost: _Cost, source: Any, step: int) -> int:
    """Return how many copies of this tensor of this shape are known to be repeated by now, that were not before.

    It was copied from its place in this step or the one before, and holds what it held then: the version alone does not
    tell, since numpy, or another process, may have written into its memory. That is known at the third copy, of all
    three. Batches that are kept and come again after some steps are not meant.
    """
    base = source if source._base is None else source._base
    which, version = (tuple(source.shape), (source.storage_offset(), *source.stride()), id(base)), source._version
    before = cost.latest.pop(which, None)
    same = before is not None and before.base() is base and before.version == version and step - before.step <= 1
    now = cost.latest[which] = before if before is not None and same else _Sent(weakref.ref(base), version, step)
    if len(cost.latest) > _REMEMBERED:
        del cost.latest[next(iter(cost.latest))]
    now.step = step
    if not same or source.nbytes > _MOST_BYTES or not source.is_contiguous():
        return 0
    held, now.checksum = now.checksum, _checksum(source)
    if held != now.checksum:
        return 0
    first, now.known = not now.known, True
    return 3 if first else 1


def _is_host(argument: Any) -> bool:
    """Return whether an argument of `Tensor.to` names the host: a device, its name, or a tensor that lies there."""
    device = argument.device if isinstance(argument, torch.Tensor) else argument
    return device == "cpu" or (isinstance(device, torch.device) and device.type == "cpu")


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)


def holds_bytes(tensor: torch.Tensor) -> bool:
    """Return whether at most 256 evenly spaced values occur in each channel, of many values that were looked at."""
    values = tensor.detach()
    axis = next((axis for axis in (1, -1) if values.dim() >= 3 and 1 < values.shape[axis] <= _FEW_CHANNELS), None)
    channels = [values] if axis is None else list(values.unbind(axis))
    return all(_on_a_grid(channel) for channel in channels)


def _on_a_grid(channel: torch.Tensor) -> bool:
    flat = channel.reshape(-1)[:_VALUES].double()
    levels = torch.unique(flat)
    if not (1 < len(levels) <= 256) or not bool(torch.isfinite(levels).all()):
        return False
    reach = levels[-1] - levels[0]
    steps = torch.round(reach / levels.diff().min())
    if steps > 255:
        return False
    places = (levels - levels[0]) / (reach / steps)
    return bool((places - places.round()).abs().max() < _OFF_GRID)


def _made(deep: DeepContext) -> CopyWatch:
    watch = CopyWatch(deep.in_step, deep.fail)
    watch.counting = False
    return watch


def _count(watch: CopyWatch) -> None:
    watch.counting = True


PROBE = Probe(
    name="device-copies",
    make=_made,
    start=_count,
    step=lambda watch, step, number: watch.step(),
    causes={"syncs": CopyWatch.syncs, "transfers": CopyWatch.transfers},
)
