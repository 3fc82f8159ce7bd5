"""One device: the stream that batches come to it on, the memory they travel through, and how much may be kept there.

Everything is done on a stream of the pipeline's own; a batch is handed to the stream that the script computes on by an
event, and its memory is not used again before that stream is done with it. A CPU stands for a device without streams.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.cache.memory_budget import MemoryBudget, available_bytes
from flatout.pipeline.cache.row_store import RowStore, mapped_bytes
from flatout.pipeline.device.batch_tensors import replaced, tensors_of
from flatout.pipeline.device.lazy_tensor import Twin
from flatout.pipeline.device.pinned_ring import PinnedRing, travels

__all__ = ["Arrived", "DeviceStream"]

_SHARE = 0.25  # of what is free on the device when first asked: the training has hardly begun to take its own
_HEADROOM = 1024**3  # bytes that stay free whatever is kept
_PASSES = 4  # over one store at a time, whose orders are there at once


class DeviceStream:
    """Where batches go. Not to be used by several threads at once."""

    def __init__(self, device: Any, max_bytes: int | None = None) -> None:
        """Name the device; keep `max_bytes` on it at most, None: a share of what is free when first asked.

        Without an index, it is the one that is current when it is first used; nothing is woken up before that.
        """
        self._named = torch.device(device)
        self._cuda = self._named.type == "cuda"
        self._max_bytes = max_bytes
        self._budget: MemoryBudget | None = None
        self._ring = PinnedRing(pinned=self._cuda)
        self._side: Any = None

    @property
    def device(self) -> torch.device:
        """Return the device."""
        if self._cuda and self._named.index is None:
            self._named = torch.device("cuda", torch.cuda.current_device())
        return self._named

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Do what follows on the pipeline's own stream."""
        if not self._cuda:
            yield
            return
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)
        with torch.cuda.stream(self._side):
            yield

    def arrive(self, parts: Sequence[Any]) -> list[Any]:
        """Return `parts`, their tensors on the device; what is there stays as it is."""
        made = list(parts)
        away = [place for place, part in enumerate(made) if isinstance(part, Tensor) and self._is_away(part)]
        ringed = [place for place in away if travels(made[place]) and not (self._cuda and made[place].is_pinned())]
        for place in set(away) - set(ringed):
            made[place] = self._copied(made[place])
        if not ringed:
            return made
        with self.working():
            try:
                for place, copy in zip(ringed, self._ring.put([made[place] for place in ringed]), strict=True):
                    made[place] = copy.to(self.device, non_blocking=self._cuda, copy=True)
            finally:
                self._ring.sent(self.event())
        return made

    def _copied(self, tensor: Tensor) -> Tensor:
        """Return what cannot go by way of the ring, or need not: torch keeps pinned memory until its copies end."""
        if not self._cuda or tensor.device.type != "cpu":
            return tensor.to(self.device)  # on the stream of the script, which made it
        with self.working():
            return tensor.to(self.device, non_blocking=True)

    def bring(self, batch: Any) -> Any:
        """Return `batch` with all its tensors on the device, as `tensor.to` would give them; also what has a `to`."""
        tensors = [tensor for tensor in tensors_of(batch) if self._is_away(tensor)]
        moved = dict(zip(map(id, tensors), self.arrive(tensors), strict=True))

        def change(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return moved.get(id(leaf), leaf)
            move = getattr(leaf, "to", None)
            return move(self.device) if callable(move) and not isinstance(leaf, type) else leaf

        return replaced(batch, change)

    def event(self) -> Any:
        """Return an event that passes when all that was begun on the pipeline's stream has ended; None on a CPU."""
        return self._side.record_event() if self._side is not None else None

    def hand_out(self, batch: Any, event: Any) -> Any:
        """Return `batch` for use on the current stream, which waits for `event`."""
        if event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(event)
            for tensor in tensors_of(batch):
                if tensor.device == self.device:
                    tensor.record_stream(current)
        return batch

    def fetched(self, tensor: Tensor, pinned: bool) -> Tensor:
        """Return a copy of `tensor`, which was made on the pipeline's stream, in memory of the CPU, `pinned` or not."""
        with self.working():
            here = tensor.to("cpu", copy=True)
        return here.pin_memory() if pinned else here

    def store(self, rows: Sequence[Rows], number: int, share: float = 1.0) -> RowStore | None:
        """Return a store for `number` samples on the device, None where it needs more than `share` of what is left."""
        wanted = mapped_bytes(rows, number)
        if not wanted or wanted > share * self._left():
            return None
        assert self._budget is not None
        try:
            with self.working():
                memory = torch.empty(wanted, dtype=torch.uint8, device=self.device)
        except RuntimeError:  # out of memory, whatever was said to be free
            return None
        made = RowStore(rows, number, memory, _Orders(self).sent)
        self._budget.take(wanted, made)
        return made

    def _left(self) -> int:
        free = self._free()
        if self._budget is None:
            self._budget = MemoryBudget(int(_SHARE * free) if self._max_bytes is None else self._max_bytes)
        return min(self._budget.left, free)

    def _free(self) -> int:
        """Return the bytes that may be taken now, headroom left; none on a device that does not say."""
        if self._cuda:
            return max(0, int(torch.cuda.mem_get_info(self.device)[0]) - _HEADROOM)
        return available_bytes() if self.device.type == "cpu" else 0

    def _is_away(self, tensor: Tensor) -> bool:
        return tensor.device != self.device


class Arrived:
    """A tensor on a device, there after `event`: given away at once where it can be made anew."""

    def __init__(self, tensor: Tensor, event: Any, again: Callable[[], tuple[Tensor, Any]] | None = None) -> None:
        """Take what is there; `again()` makes it anew, whatever has become of it, and says after which event."""
        self._made: tuple[Tensor, Any] | None = (tensor, event)
        self._again = again if tensor._base is None else None

    def twin(self, device: DeviceStream, pinned: bool, touched: Callable[[], None]) -> Twin:
        """Return what gives copies of it: on the current stream, or as `device` fetches them, after `touched`."""

        def there() -> Tensor:
            tensor, event, is_its_own = self._taken(device)
            found: Tensor = device.hand_out(tensor, event)
            return found if is_its_own else found.clone()

        return Twin(there, lambda: device.fetched(self._made_or_again()[0], pinned), touched)

    def _taken(self, device: DeviceStream) -> tuple[Tensor, Any, bool]:
        """Return the tensor, its event, and whether it is the caller's own, if it may be; else it is to be copied."""
        tensor, event = self._made_or_again()
        own = (
            self._again is not None
            and tensor.is_inference() == torch.is_inference_mode_enabled()
            and _on_default_stream(device)
        )
        if own:
            self._made = None
        return tensor, event, own

    def _made_or_again(self) -> tuple[Tensor, Any]:
        if self._made is None:
            assert self._again is not None
            return self._again()
        return self._made


def _on_default_stream(device: DeviceStream) -> bool:
    """Return whether the current stream is the default one, on which the pipeline's memory may be given away.

    What is copied on another stream and used on a third is safe where that one waits; `record_stream` knows of the
    current one alone.
    """
    here = device.device
    return here.type != "cuda" or torch.cuda.current_stream(here) == torch.cuda.default_stream(here)


class _Orders:
    """The indices of batches, on the device: the order of a pass, which they are cut from, is sent in one piece."""

    def __init__(self, device: DeviceStream) -> None:
        self._device = device
        self._latest: deque[tuple[Tensor, int, Tensor]] = deque(maxlen=_PASSES)  # order, its version, its copy

    def sent(self, indices: Tensor) -> Tensor:
        """Return `indices`, shape (samples,), on the device."""
        whole: Tensor | None = indices._base
        if whole is None or not (whole.is_contiguous() and indices.is_contiguous()):
            moved: Tensor = self._device.arrive([indices])[0]
            return moved
        start = indices.storage_offset() - whole.storage_offset()
        return self._there(whole)[start : start + len(indices)]

    def _there(self, whole: Tensor) -> Tensor:
        for known, version, there in self._latest:
            if known is whole and version == whole._version:
                return there
        self._latest.append((whole, whole._version, self._device.arrive([whole])[0]))
        return self._latest[-1][2]
