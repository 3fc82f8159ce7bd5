"""Batches on their way from one process to another: tensors and arrays through shared memory, the rest pickled.

The receiver copies what it takes into memory of its own, which is recycled where it is large: a batch is then what the
script's own process would have made, and its place in the shared memory is free again.
"""

import functools
import io
import mmap
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from flatout.native.recycled_memory import RecycledMemory

__all__ = ["BatchArena", "Parcel", "bytes_of"]

_ALIGNED = 64
_SPARE = 1.25  # times the first batch: later ones may be larger; what does not fit is pickled
_LEAST = 1 << 16


class Parcel(NamedTuple):
    """A batch as it is sent.

    Attributes:
        pickled: all but the tensors and arrays.
        places: where these lie in the slot, each as offset and length.
        saved: the bytes are torch's own, in which tensors that share memory still do.
    """

    pickled: bytes
    places: tuple[tuple[int, int], ...] = ()
    saved: bool = False


class BatchArena:
    """Memory of some slots, a batch each, that processes share which are forked after it was made."""

    def __init__(self, slots: int, batch_bytes: int) -> None:
        """Make it; `batch_bytes`: what the tensors and arrays of a batch take."""
        self._slot_bytes = _aligned(max(_LEAST, int(_SPARE * batch_bytes)))
        self._memory = memoryview(mmap.mmap(-1, slots * self._slot_bytes))
        self._slots = slots
        self._recycled = RecycledMemory()

    def put(self, number: int, batch: Any) -> Parcel:
        """Write a batch into the slot of its `number`, which the receiver has taken the last batch out of."""
        slot, places = self._slot(number), list[tuple[int, int]]()

        def place(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            start = _aligned(sum(places[-1])) if places else 0
            if start + raw.nbytes > self._slot_bytes:
                return True  # into the pickle
            slot[start : start + raw.nbytes] = raw
            places.append((start, raw.nbytes))
            return False

        written = io.BytesIO()
        try:
            _Packing(written, 5, buffer_callback=place).dump(batch)
        except _SharesMemoryError:
            written = io.BytesIO()
            sys.modules["torch"].save(batch, written)
            return Parcel(written.getvalue(), saved=True)
        return Parcel(written.getvalue(), tuple(places))

    def take(self, number: int, parcel: Parcel) -> Any:
        """Return the batch of a parcel, in memory of this process."""
        if parcel.saved:
            return sys.modules["torch"].load(io.BytesIO(parcel.pickled), weights_only=False)
        slot = self._slot(number)
        buffers = [slot[start : start + length] for start, length in parcel.places]
        return _Unpacking(io.BytesIO(parcel.pickled), self._recycled, buffers).load()

    def _slot(self, number: int) -> memoryview:
        start = number % self._slots * self._slot_bytes
        return self._memory[start : start + self._slot_bytes]


def bytes_of(batch: Any) -> int:
    """Return how much of a slot a batch takes."""
    found: list[int] = []
    try:
        _Packing(io.BytesIO(), 5, buffer_callback=lambda buffer: found.append(buffer.raw().nbytes)).dump(batch)
    except _SharesMemoryError:
        return 0
    return sum(map(_aligned, found))


def _aligned(number: int) -> int:
    return -(-number // _ALIGNED) * _ALIGNED


class _SharesMemoryError(Exception):
    pass


class _Packing(pickle.Pickler):
    """Pickles a batch; tensors and arrays that fill their memory go beside the pickle."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._met: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is sys.modules["torch"].Tensor and _fills_its_memory(obj):
            self._meet(obj.data_ptr(), obj.nbytes)
            return _Beside.tensor, (pickle.PickleBuffer(_bytes_in(obj).numpy()), obj.dtype, obj.shape, obj.stride())
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and not obj.dtype.hasobject and obj.base is None:
            for order in "CF":
                if obj.flags[order]:
                    flat = obj.reshape(-1, order=order).view("u1") if obj.nbytes else numpy.empty(0, "u1")
                    return _Beside.array, (pickle.PickleBuffer(flat), obj.dtype, obj.shape, order)
        return NotImplemented

    def _meet(self, address: int, length: int) -> None:
        if length and address in self._met:
            raise _SharesMemoryError
        self._met.add(address)


class _Unpacking(pickle.Unpickler):
    """Reads such a pickle; what is beside it is copied."""

    def __init__(self, file: Any, recycled: RecycledMemory, buffers: Sequence[memoryview]) -> None:
        super().__init__(file, buffers=buffers)
        self._recycled = recycled

    def find_class(self, module: str, name: str) -> Any:
        """Return no method of this object's own: it would hold itself, and all that it has read, until collected."""
        if module == __name__ and name in ("_Beside.tensor", "_Beside.array"):
            return functools.partial(_tensor, self._recycled) if name.endswith("tensor") else _array
        return super().find_class(module, name)


def _tensor(recycled: RecycledMemory, buffer: Any, dtype: Any, shape: Sequence[int], stride: Sequence[int]) -> Any:
    torch, num_bytes = sys.modules["torch"], len(buffer)
    if not num_bytes:
        return torch.empty_strided(shape, stride, dtype=dtype)
    flat = recycled.empty((num_bytes,), torch.uint8)
    flat.copy_(torch.frombuffer(buffer, dtype=torch.uint8))
    return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, shape, stride)


def _array(buffer: Any, dtype: Any, shape: Sequence[int], order: str) -> Any:
    numpy = sys.modules["numpy"]
    found = numpy.empty(shape, dtype, order)
    if len(buffer):
        found.reshape(-1, order=order).view("u1")[:] = numpy.frombuffer(buffer, "u1")
    return found


class _Beside:
    """Names under which a pickle has what lies beside it."""

    @staticmethod
    def tensor(*_: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def array(*_: Any) -> Any:
        raise NotImplementedError


def _fills_its_memory(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    odd = tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.storage_offset()
    return plain and not odd and not vars(tensor) and tensor.untyped_storage().nbytes() == tensor.nbytes


def _bytes_in(tensor: Any) -> Any:
    """Return the memory of a tensor as bytes, whatever its strides."""
    torch = sys.modules["torch"]
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (tensor.nbytes,), (1,))
