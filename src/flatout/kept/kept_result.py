"""What a function returned, kept so that a caller gets it as if it had been made for him: fresh memory each time."""

import marshal
import sys
from typing import Any, NamedTuple

import torch

from flatout.kept.lying_places import Places, span_of
from flatout.watch.dataset_state import same

__all__ = ["KeptResult", "Unkeepable"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_ALIGNED = 64  # bytes: where torch puts what it makes


class Unkeepable(Exception):
    """A result that is not kept; the message says why."""


class _View(NamedTuple):
    """An array that sees the whole of another one, which holds its numbers."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    def make(self) -> Any:
        """Return the array, with memory of its own."""
        numbers = self.base.copy()
        return type(numbers)(self.shape, self.dtype, buffer=numbers, strides=self.strides)


class _Part(NamedTuple):
    """A tensor that sees a part of a storage, or all of it in an order of its own."""

    numbers: Any  # of the whole storage, in one dimension
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def make(self) -> Any:
        """Return the tensor, with a storage of its own."""
        return self.numbers.clone().as_strided(self.shape, self.strides, self.offset)


class KeptResult:
    """A nest of lists, tuples and dictionaries with tensors, arrays and plain values.

    Attributes:
        num_bytes: what it takes.
    """

    def __init__(self, value: Any) -> None:
        """Copy `value`.

        Raises:
            Unkeepable: it holds something else, or the same thing twice.
        """
        self.num_bytes = 0
        self._memory = Places()
        _check_each_once(value, set())
        self._node = self._taken(value)
        del self._memory

    def make(self) -> Any:
        """Return the value in fresh memory."""
        return _made(self._node)

    def is_same(self, value: Any) -> bool:
        """Return whether `value` is the same to the last bit."""
        try:
            return _equal(self._node, KeptResult(value)._node)
        except Unkeepable:
            return False

    def _taken(self, value: Any) -> Any:
        kind = type(value)
        if kind in (str, bytes):  # somebody may ask whether it is the very text that a function always gives
            self.num_bytes += len(value)
            return (kind, value)
        if _is_plain(value):
            text = marshal.dumps(value, 2)  # without references: each value by itself
            self.num_bytes += len(text)
            return text
        if kind in (torch.dtype, torch.device, torch.Size):
            return (kind, value)
        if kind is torch.Tensor:
            return self._tensor(value)
        if kind is _ndarray():
            return self._array(value)
        if kind in (list, tuple):
            return [kind, *(self._taken(each) for each in value)]
        if kind is dict and all(type(key) in _PLAIN for key in value):
            return {key: self._taken(each) for key, each in value.items()}
        raise Unkeepable(f"it returns an object of {kind.__name__}")

    def _tensor(self, value: Any) -> Any:
        if value.requires_grad or value.is_inference():
            raise Unkeepable("what it returns has gradients, or was made in inference mode")
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized or vars(value):
            raise Unkeepable("it returns a tensor of a kind that is not kept")
        storage = value.untyped_storage()
        whole = value.storage_offset() == 0 and storage.nbytes() == value.numel() * value.element_size()
        rounds = value.dtype.is_floating_point or value.dtype.is_complex
        if rounds and storage.data_ptr() % _ALIGNED:  # sums of a library may depend on that
            raise Unkeepable("it returns a tensor in memory that torch did not make")
        odd = value.is_conj() or value.is_neg() or value.is_shared()
        self._only(value)
        copy = value.detach().clone()
        if odd or (whole and copy.stride() != value.stride()) or storage.nbytes() % value.element_size():
            raise Unkeepable("it returns a tensor that sees memory in an unusual way")
        self.num_bytes += storage.nbytes()
        return copy if whole and not value._is_view() else _part_of(value)

    def _array(self, value: Any) -> Any:
        base = value.base
        whole = base is None or (type(base) is _ndarray() and base.base is None and base.nbytes == value.nbytes)
        whole = whole and value.flags.writeable and value.flags.forc
        if not whole or value.dtype.hasobject or value.dtype.names:
            raise Unkeepable("it returns an array that is a part of another one, or holds objects")
        self._only(value)
        self.num_bytes += value.nbytes
        if base is None:
            return value.copy(order="K")
        if not base.flags.c_contiguous or base.dtype.hasobject or not base.flags.writeable:
            raise Unkeepable("it returns an array that is a view of an unusual one")
        return _View(base.copy(), value.shape, value.strides, value.dtype)

    def _only(self, value: Any) -> None:
        if self._memory.add_span(span_of(value)):
            raise Unkeepable("it returns the same memory twice")


def _part_of(value: Any) -> _Part:
    """Return a part of a tensor, with all the numbers that are there.

    Raises:
        Unkeepable: it is no part of one that torch made.
    """
    if not value._is_view():
        raise Unkeepable("it returns a tensor that sees memory in an unusual way")
    length = value.untyped_storage().nbytes() // value.element_size()
    numbers = value.detach().as_strided((length,), (1,), 0).clone()
    return _Part(numbers, tuple(value.shape), value.stride(), value.storage_offset())


def _is_plain(value: Any) -> bool:
    """Return whether a value is plain all through."""
    kind = type(value)
    if kind in (list, tuple):
        return all(type(each) in _PLAIN or _is_plain(each) for each in value)
    if kind is dict:
        return all(type(key) in _PLAIN and _is_plain(each) for key, each in value.items())
    return kind in _PLAIN


def _check_each_once(value: Any, seen: set[int]) -> None:
    """Look for what can be written to in two places at once.

    Raises:
        Unkeepable: there is such a thing.
    """
    kind = type(value)
    if kind in (*_PLAIN, torch.dtype, torch.device, torch.Size):
        return
    if kind is not tuple:
        if id(value) in seen:
            raise Unkeepable("it returns the same object twice")
        seen.add(id(value))
    if kind in (list, tuple, dict):
        for each in value.values() if kind is dict else value:
            if type(each) not in _PLAIN:
                _check_each_once(each, seen)


def _made(node: Any) -> Any:
    if isinstance(node, bytes):
        return marshal.loads(node)
    if isinstance(node, list):
        return node[0](_made(each) for each in node[1:])
    if isinstance(node, dict):
        return {key: _made(each) for key, each in node.items()}
    if type(node) in (_View, _Part):
        return node.make()
    if isinstance(node, tuple):
        return node[1]
    return node.copy(order="K") if type(node) is _ndarray() else node.clone()


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and one[0] is other[0] and all(map(_equal, one[1:], other[1:]))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, _Part):
        return one[1:] == other[1:] and same(one.numbers, other.numbers)
    if isinstance(one, _View):
        return one[1:] == other[1:] and same(one.base, other.base)
    return bool(one == other) if isinstance(one, bytes | tuple) else same(one, other)


def _ndarray() -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.ndarray if numpy is not None else None
