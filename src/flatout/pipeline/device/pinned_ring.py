"""Pinned memory that batches pass through on their way to a device, used again once their copies have ended."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["PinnedRing", "travels"]

_ALIGNED = 64
_DEPTH = 3  # one that is being copied, one batch ahead, one that is being written


@dataclass(eq=False)
class _Slot:
    memory: Tensor
    event: Any = None  # recorded after the last copy out of it


class PinnedRing:
    """A few pieces of memory, each written only when the copies out of it have ended; nobody outside sees them."""

    def __init__(self, pinned: bool, depth: int = _DEPTH) -> None:
        """Take no memory yet; `pinned`: take such as a device can read by itself."""
        self._pinned = pinned
        self._depth = depth
        self._slots: list[_Slot] = []  # the one that was used longest ago first
        self._open: _Slot | None = None

    def put(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of `tensors`, which `travels` holds for, that a device may read until `sent` is called."""
        ends = [0]
        for tensor in tensors:
            ends.append(ends[-1] + -(-tensor.nbytes // _ALIGNED) * _ALIGNED)
        slot = self._open = self._free(ends[-1])
        copies = []
        for tensor, start in zip(tensors, ends, strict=False):
            place = slot.memory[start : start + tensor.nbytes].view(tensor.dtype)
            copies.append(place.as_strided(tensor.shape, tensor.stride(), place.storage_offset()).copy_(tensor))
        return copies

    def sent(self, event: Any) -> None:
        """Note the event after which what was `put` last may be written over; None: at once."""
        if self._open is not None:
            self._open.event, self._open = event, None

    def _free(self, num_bytes: int) -> _Slot:
        slot = next((slot for slot in self._slots if slot.event is None or slot.event.query()), None)
        if slot is None and len(self._slots) == self._depth:
            slot = self._slots[0]
            slot.event.synchronize()
        if slot is not None:
            self._slots.remove(slot)
        if slot is None or len(slot.memory) < num_bytes:
            slot = _Slot(self._taken(num_bytes))
        slot.event = None
        self._slots.append(slot)
        return slot

    def _taken(self, num_bytes: int) -> Tensor:
        if self._pinned:
            with contextlib.suppress(RuntimeError):  # no more memory may be pinned: plain memory is copied as safely
                return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
        return torch.empty(num_bytes, dtype=torch.uint8)


def travels(tensor: Tensor) -> bool:
    """Return whether `tensor` is plain bytes, densely laid out, that can be copied by way of other memory."""
    plain = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not plain or tensor.requires_grad or tensor.is_quantized or not tensor.numel():
        return False
    return not (tensor.is_conj() or tensor.is_neg()) and _dense(tensor)


def _dense(tensor: Tensor) -> bool:
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    return tensor.is_contiguous() or tensor.permute(order).is_contiguous()
