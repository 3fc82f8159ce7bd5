"""What a data set holds and does that another process would not share: generators, handles, random draws, changes.

Used where batches are about to be made in worker processes instead of in the training process. Everything here only
looks; nothing is called on the data set.
"""

import functools
import io
import random
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

__all__ = [
    "fingerprint",
    "holds_generator",
    "in_a_worker",
    "parts",
    "random_states",
    "restore_random_states",
    "same",
    "undrawn",
    "unsafe",
]

_MOST = 2000  # objects looked at
_DEPTH = 5
_ITEMS = 64  # of one container
# Packages whose objects stand for something outside the process that two processes cannot share after a fork.
_HANDLES = {"h5py", "lmdb", "sqlite3", "netCDF4", "tables", "tarfile", "zipfile", "socket", "ssl", "av", "decord"}
_HANDLES |= {"rasterio", "psycopg2", "pymongo", "redis", "duckdb", "queue", "multiprocessing"}
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)


def parts(thing: Any) -> Iterator[Any]:
    """Yield `thing` and what it is made of: attributes, items of small containers, closures; a few levels deep."""
    queue: deque[tuple[Any, int]] = deque([(thing, 0)])
    seen: set[int] = set()
    while queue and len(seen) < _MOST:
        part, depth = queue.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if depth < _DEPTH:
            queue.extend((inner, depth + 1) for inner in _inside(part))


def _inside(part: Any) -> list[Any]:
    if isinstance(part, _LEAVES):
        return []
    if isinstance(part, dict):
        return list(part.values())[:_ITEMS]
    if isinstance(part, list | tuple | set | frozenset | deque):
        return list(part)[:_ITEMS] if len(part) <= 50 * _ITEMS else []
    if isinstance(part, types.FunctionType):
        return [cell.cell_contents for cell in part.__closure__ or () if _filled(cell)]
    if isinstance(part, types.MethodType):
        return [part.__self__]
    if isinstance(part, functools.partial):
        return [part.func, *part.args, *part.keywords.values()]
    if _is_tensor(part) or type(part).__module__.partition(".")[0] == "numpy":
        return []
    return list(getattr(part, "__dict__", {}).values())


def _is_tensor(part: Any) -> bool:
    return isinstance(part, sys.modules["torch"].Tensor)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def unsafe(*things: Any) -> str:
    """Return why `things` must stay in the training process, an empty string when nothing speaks against moving."""
    for thing in things:
        for part in parts(thing):
            reason = _unsafe(part)
            if reason:
                return f"{type(thing).__name__} {reason}"
    return ""


def _unsafe(part: Any) -> str:
    if _is_tensor(part):
        return "" if part.device.type == "cpu" else f"holds a tensor on {part.device}"
    if _is_generator(part):
        return "draws from a random generator of its own"
    if isinstance(part, io.IOBase) or callable(getattr(type(part), "fileno", None)):
        return "holds an open file"
    package = type(part).__module__.partition(".")[0]
    if package in _HANDLES:
        return f"holds an object of {package}"
    if callable(getattr(type(part), "__next__", None)):
        return "walks an iterator of its own"
    return ""


def holds_generator(*things: Any) -> bool:
    """Return whether a random generator is among the parts of `things`."""
    return any(_is_generator(part) for thing in things for part in parts(thing))


def _is_generator(part: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules["torch"]
    kinds: tuple[Any, ...] = (random.Random, torch.Generator)
    shared = [getattr(random, "_inst", None), torch.default_generator]  # the process's own: watched, and seeded
    if numpy is not None:
        kinds = (*kinds, numpy.random.Generator, numpy.random.RandomState)
        shared.append(getattr(numpy.random.mtrand, "_rand", None))
    return isinstance(part, kinds) and not any(part is one for one in shared)


def fingerprint(dataset: Any) -> tuple[object, ...]:
    """Return what shows whether `dataset` has changed: its plain values, the identity and size of everything else."""
    return tuple(_mark(part) for part in parts(dataset))


def _mark(part: Any) -> object:
    if isinstance(part, _LEAVES):
        return part if not isinstance(part, type | types.ModuleType) else id(part)
    version = part._version if _is_tensor(part) else None
    size = len(part) if isinstance(part, list | tuple | dict | set | deque) else version
    return (id(part), size)


# -- random draws -----------------------------------------------------------------------------------------------


def random_states() -> tuple[Any, Any, Any]:
    """Return where the global random streams of Python, torch (CPU) and NumPy stand."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    return random.getstate(), torch.random.get_rng_state(), numpy.random.get_state() if numpy is not None else None


def undrawn(before: tuple[Any, Any, Any], after: tuple[Any, Any, Any]) -> bool:
    """Return whether nothing was drawn between two looks at the streams."""
    if before[0] != after[0] or not sys.modules["torch"].equal(before[1], after[1]):
        return False
    old, new = before[2], after[2]
    return old is None or (old[2:] == new[2:] and bool((old[1] == new[1]).all()))


def restore_random_states(states: tuple[Any, Any, Any]) -> None:
    """Put the streams back to where they stood."""
    random.setstate(states[0])
    sys.modules["torch"].random.set_rng_state(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def in_a_worker() -> bool:
    """Return whether this process is itself a worker, which can have none."""
    import multiprocessing

    return multiprocessing.current_process().daemon


# -- comparing --------------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Return whether two batches are equal to the last bit, NaN included; False where that cannot be told."""
    if type(left) is not type(right):
        return False
    if _is_tensor(left):
        return _same_tensors(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, str | bytes | int | float | complex | bool | type(None)):
        return left == right or (left != left and right != right)
    if callable(getattr(left, "tobytes", None)):  # an array, an image
        return (
            getattr(left, "shape", None) == getattr(right, "shape", None)
            and getattr(left, "dtype", None) == getattr(right, "dtype", None)
            and bool(left.tobytes() == right.tobytes())
        )
    inner = getattr(left, "__dict__", None)
    return bool(inner) and same(inner, vars(right))


def _same_tensors(left: Any, right: Any) -> bool:
    torch = sys.modules["torch"]
    if (left.shape, left.dtype, left.layout, left.device) != (right.shape, right.dtype, right.layout, right.device):
        return False
    if left.layout is not torch.strided or left.is_quantized:
        return False
    flat = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)]
    return left.stride() == right.stride() and bool(torch.equal(*flat))
