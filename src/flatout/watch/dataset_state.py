"""What a data set holds and does that another process would not share: generators, handles, random draws, changes.

Used where batches are about to be made in worker processes instead of in the training process. Everything here only
looks; nothing is called on the data set.
"""

import random
import sys
import types
from collections import deque
from typing import Any

from flatout.native.content import content_of
from flatout.watch.components import LEAVES, attributes_of, handle_of, is_generator, names_in, parts

__all__ = [
    "RandomStates",
    "drawn_on_device",
    "draws_elsewhere",
    "fingerprint",
    "holds_generator",
    "in_a_worker",
    "parts",
    "random_states",
    "reseeds",
    "restore_random_states",
    "same",
    "seed_streams",
    "undrawn",
    "unsafe",
]

RandomStates = tuple[Any, Any, Any, list[Any]]
"""Of Python, of torch on the CPU, of NumPy where it is loaded, of torch on each CUDA device that is in use."""

_OPENCV = {"randu", "randn", "randShuffle"}
_SETS = {"manual_seed", "seed", "set_rng_state", "setstate", "set_state", "fork_rng", "seed_everything", "set_seed"}


def unsafe(*things: Any, generators: bool = True) -> str:
    """Return why `things` must stay in the training process, an empty string when nothing speaks against moving.

    `generators`: a random generator of their own does.
    """
    for thing in things:
        for part in parts(thing):
            reason = _unsafe(part) if generators or not is_generator(part) else ""
            if reason:
                return f"{type(thing).__name__} {reason}"
    return ""


def _unsafe(part: Any) -> str:
    if _is_tensor(part):
        return "" if part.device.type == "cpu" else f"holds a tensor on {part.device}"
    if is_generator(part):
        return "draws from a random generator of its own"
    held = handle_of(part)
    if held:
        return f"holds {held}"
    if callable(getattr(type(part), "__next__", None)):
        return "walks an iterator of its own"
    return ""


def _is_tensor(part: Any) -> bool:
    return isinstance(part, sys.modules["torch"].Tensor)


def holds_generator(*things: Any) -> bool:
    """Return whether a random generator is among the parts of `things`."""
    return any(is_generator(part) for thing in things for part in parts(thing))


def draws_elsewhere(dataset: Any) -> str:
    """Return whose random stream, one that cannot be put back, code of `dataset` names; an empty string for none."""
    code = [part.__code__ for part in parts(dataset) if isinstance(part, types.FunctionType)]
    named = [
        (names.read | names.imported | {*each.co_freevars}, names.attributes)
        for each in code
        for names in (names_in(each),)
    ]
    opencv = any("cv2" in read and _OPENCV & attributes for read, attributes in named)
    return "draws from OpenCV's random generator" if opencv else ""


def reseeds(dataset: Any) -> bool:
    """Return whether code of `dataset` names what sets a random stream: two threads then disturb each other."""
    found = list(parts(dataset))
    methods = [vars(kind).get("__getitem__") for each in found for kind in type(each).__mro__[:3]]
    functions = [one for one in (*found, *methods) if isinstance(one, types.FunctionType)]
    code = [function.__code__ for function in functions if function.__name__ != "__init__"]  # called already
    return any(_SETS & (names.read | names.attributes) for names in map(names_in, code))


def fingerprint(dataset: Any, content: bool = False, transforms: bool = True) -> tuple[object, ...]:
    """Return what shows whether `dataset` has changed: its plain values, the identity and size of everything else.

    A file that was opened since is no change. `content`: what stands in lists and arrays counts, too; `transforms`:
    what data sets hold that can be called.
    """
    return tuple(
        _mark(part, content) for part in parts(dataset, transforms) if part is not None and not handle_of(part)
    )


def _mark(part: Any, content: bool) -> object:
    if isinstance(part, LEAVES):
        return part
    if _is_tensor(part):
        return (id(part), part._version)
    size = len(part) if isinstance(part, list | tuple | dict | set | deque) else None
    own = attributes_of(part)
    names = hash(tuple(_filled(own))) if own is not None else None
    return (id(part), size, names, content_of(part) if content else None)


def _filled(own: dict[str, Any]) -> list[str]:
    """Return the names of attributes that hold something, and not only a way to it."""
    return [name for name, value in own.items() if value is not None and not handle_of(value)]


# -- random draws -----------------------------------------------------------------------------------------------


def random_states() -> RandomStates:
    """Return where the global random streams of Python, torch and NumPy stand; of torch those of CUDA devices, too."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else None
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return random.getstate(), torch.random.get_rng_state(), of_numpy, on_devices


def seed_streams(seed: int) -> None:
    """Start torch's global streams from `seed`, for a while: on the CPU and on the CUDA devices that are in use.

    `torch.manual_seed` would do more than `restore_random_states` can undo: where no device is in use yet, torch
    remembers the seed and starts the devices' streams from it later, in place of the script's own.
    """
    torch = sys.modules["torch"]
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def undrawn(before: RandomStates, after: RandomStates) -> bool:
    """Return whether nothing was drawn between two looks at the streams."""
    if before[0] != after[0] or not _same_state(before[1], after[1]) or drawn_on_device(before, after):
        return False
    old, new = before[2], after[2]
    return old is None or (old[2:] == new[2:] and bool((old[1] == new[1]).all()))


def _same_state(one: Any, other: Any) -> bool:
    """Return whether two states of torch are the same; a call of torch would give the interpreter's lock up."""
    if "numpy" in sys.modules:
        return bool(one.numpy().tobytes() == other.numpy().tobytes())
    return bool(sys.modules["torch"].equal(one, other))


def drawn_on_device(before: RandomStates, after: RandomStates) -> bool:
    """Return whether a CUDA device's stream has moved between two looks; False where none was in use at the first."""
    return any(not sys.modules["torch"].equal(one, other) for one, other in zip(before[3], after[3], strict=False))


def restore_random_states(states: RandomStates) -> None:
    """Put the streams back to where they stood."""
    random.setstate(states[0])
    sys.modules["torch"].random.set_rng_state(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])
    if states[3]:
        sys.modules["torch"].cuda.set_rng_state_all(states[3])


def in_a_worker() -> bool:
    """Return whether this process is itself a worker, which can have none."""
    import multiprocessing

    return multiprocessing.current_process().daemon


# -- comparing --------------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Return whether two batches are equal to the last bit, NaN included; False where that cannot be told."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", ())
    if isinstance(left, image) and isinstance(right, image):  # one of them may know its file
        return (left.mode, left.size) == (right.mode, right.size) and bool(left.tobytes() == right.tobytes())
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
