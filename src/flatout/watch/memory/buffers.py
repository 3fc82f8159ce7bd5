"""Where arrays, tensors and other objects have their numbers."""

import array
import ctypes
import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flatout.watch.components import module_of
from flatout.watch.memory.layouts import HEAD, WORD, word_at
from flatout.watch.per_class_cache import PerClassCache

__all__ = ["Memory", "gradient_of", "holds_memory", "memory_of"]

_TENSOR = ((16, 8), (56, 112))  # of torch's own object: the storage; sizes, strides, place, type
_STORAGE = (16, 40)  # where it lies and how much it is


@dataclass(frozen=True)
class Memory:
    """Ranges of memory that say what an object holds.

    Attributes:
        ranges: starts and lengths in bytes.
        inner: what it refers to besides.
        unwatched: why it may change unseen, if so.
        file: the name of the file that it is mapped from.
        opaque: some of what it holds stands where nobody knows.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    inner: list[Any] = field(default_factory=list)
    unwatched: str = ""
    file: str = ""
    opaque: bool = False


def holds_memory(thing: Any) -> bool:
    """Tell whether an object is an array, a tensor or alike."""
    return _way(type(thing)) is not None


def memory_of(thing: Any) -> Memory:
    """Return where such an object has its numbers."""
    way = _way(type(thing))
    assert way is not None
    found: Memory = way(thing)
    return found


@PerClassCache
def _way(kind: Any) -> Any:
    numpy, torch = sys.modules.get("numpy"), sys.modules["torch"]
    ways: list[tuple[Any, Any]] = [
        (torch.Tensor, _of_tensor),
        (torch.UntypedStorage, _of_storage),
        (array.array, _of_array),
        (mmap.mmap, _of_mmap),
        (bytearray, _of_bytearray),
        (memoryview, lambda view: Memory(inner=[view.obj])),
        ((ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union), _of_ctypes),
    ]
    if numpy is not None:
        ways.insert(0, (numpy.ndarray, _of_numpy))
    if module_of(kind) == "PIL.Image" or any(module_of(base) == "PIL.Image" for base in kind.__mro__):
        return _of_image
    return next((way for base, way in ways if issubclass(kind, base)), None)


def _of_tensor(tensor: Any) -> Memory:
    torch = sys.modules["torch"]
    plain = tensor.as_subclass(torch.Tensor) if type(tensor) is not torch.Tensor else tensor
    if plain.layout is not torch.strided or plain.device.type != "cpu" or plain.is_quantized:
        return Memory(unwatched=f"a tensor that is {plain.layout} on {plain.device}")
    at, storage = tensor._cdata, plain.untyped_storage()
    ranges = [(id(tensor) + WORD, 3 * WORD), *((at + start, length) for start, length in _TENSOR)]
    ranges.append((storage._cdata + _STORAGE[0], _STORAGE[1]))
    spans = zip(plain.shape, plain.stride(), strict=True)
    if plain.numel():
        length = (1 + sum((size - 1) * stride for size, stride in spans)) * plain.element_size()
        ranges.append((plain.data_ptr(), length))
    gradient = gradient_of(tensor)
    return Memory(ranges, [] if gradient is None else [gradient])


def gradient_of(tensor: Any) -> Any:
    """Return the gradient of a tensor of torch's own classes, None where it has none, without a warning or a call."""
    torch = sys.modules["torch"]
    is_torchs = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return tensor.grad if is_torchs and (tensor.is_leaf or tensor.retains_grad) else None


def _of_storage(storage: Any) -> Memory:
    start, length = _STORAGE
    return Memory([(storage._cdata + start, length), (storage.data_ptr(), storage.nbytes())])


def _of_numpy(values: Any) -> Memory:
    numpy = sys.modules["numpy"]
    at = id(values) + HEAD
    ranges = [(at, 6 * WORD), (word_at(at + 2 * WORD), 2 * WORD * values.ndim)]  # the last of the six: its type
    held: list[Any] = []
    if values.size:
        view = numpy.asarray(values)
        start, end = _bounds(view)
        ranges.append((start, end - start))
        held = view.ravel().tolist() if values.dtype.hasobject else []
    base = _bottom(values)
    if isinstance(base, numpy.memmap | mmap.mmap):
        return _of_map(values, base, ranges[:-1], held)
    return Memory(ranges, held)


def _bounds(view: Any) -> tuple[int, int]:
    """Return the first address of an array's numbers, and the one behind the last."""
    start = end = int(view.__array_interface__["data"][0])
    for size, stride in zip(view.shape, view.strides, strict=True):
        start, end = start + min(0, (size - 1) * stride), end + max(0, (size - 1) * stride)
    return start, end + view.itemsize


def _bottom(values: Any) -> Any:
    numpy = sys.modules["numpy"]
    while True:
        base = getattr(values, "base", None)
        if isinstance(base, memoryview):
            base = base.obj
        if base is None or isinstance(values, mmap.mmap):
            return values
        if isinstance(values, numpy.memmap) and isinstance(base, mmap.mmap):
            return values
        values = base


def _of_map(values: Any, base: Any, ranges: list[tuple[int, int]], held: list[Any]) -> Memory:
    """Return what is known of an array that lies in a mapped file: its name, if it cannot be written through it."""
    name = getattr(base, "filename", None)
    if name is None or getattr(base, "mode", "") != "r":
        return Memory(ranges, held, f"an array of a mapped file that may be written ({name or 'no name'})")
    return Memory(ranges, held, file=str(name))


def _of_mmap(mapped: mmap.mmap) -> Memory:
    with memoryview(mapped) as view:
        return Memory(unwatched="" if view.readonly else "a map of memory or of a file that may be written")


def _of_array(items: "array.array[Any]") -> Memory:
    start, number = items.buffer_info()
    return Memory([(id(items) + HEAD, 2 * WORD), (start, number * items.itemsize)])


def _of_bytearray(items: bytearray) -> Memory:
    ranges = [(id(items) + HEAD, 4 * WORD)]
    if items:
        ranges.append((ctypes.addressof(ctypes.c_char.from_buffer(items)), len(items)))
    return Memory(ranges)


def _of_ctypes(thing: Any) -> Memory:
    return Memory([(ctypes.addressof(thing), ctypes.sizeof(thing))], list(_kept(thing)))


def _kept(thing: Any) -> Iterable[Any]:
    kept = getattr(thing, "_objects", None)
    return kept.values() if isinstance(kept, dict) else ()


def _of_image(image: Any) -> Memory:
    """Return where an image of Pillow's has its attributes; of its pixels nothing is known."""
    own = object.__getattribute__(image, "__dict__")
    return Memory(inner=[value for name, value in own.items() if name not in ("_im", "im")], opaque=True)
