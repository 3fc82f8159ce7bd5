"""How long each operation of a data set's transform takes, and on how many pixels: a look at the end of a deep run."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flatout.schema.run import Stage

__all__ = ["look_at_stages"]

_INDICES = 8
_LONGEST_S = 1.0


class _Timed:
    """One operation, timed, with the pixels that go in and come out."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        self.operation = operation
        self.calls = 0
        self.seconds = 0.0
        self.before = 0
        self.after = 0

    def __call__(self, *inputs: Any) -> Any:
        start = time.perf_counter()
        result = self.operation(*inputs)
        self.seconds += time.perf_counter() - start
        self.calls += 1
        self.before += _pixels(inputs[0]) if inputs else 0
        self.after += _pixels(result[0] if isinstance(result, tuple) and result else result)
        return result

    def stage(self) -> Stage:
        kind = type(self.operation)
        library = kind.__module__.partition(".")[0]
        calls = max(1, self.calls)
        return Stage(
            name=kind.__name__,
            library=library if library in ("torchvision", "albumentations") else "",
            seconds=self.seconds / calls,
            pixels_before=self.before // calls,
            pixels_after=self.after // calls,
        )


def look_at_stages(dataset: Any) -> tuple[Stage, ...]:
    """Return the operations of the one list of transforms that `dataset` has, in order; nothing where there is none.

    The list is replaced for the time of the look. Random states are the caller's to keep.
    """
    holder = _list_of_transforms(dataset)
    if holder is None:
        return ()
    original = holder.transforms
    timed = [_Timed(operation) for operation in original]
    holder.transforms = type(original)(timed)
    try:
        length, begin = len(dataset), time.perf_counter()
        for number in range(min(_INDICES, length)):
            dataset[number * length // _INDICES if length >= _INDICES else number]
            if time.perf_counter() - begin > _LONGEST_S:
                break
    except Exception:  # the data set's own; what it costs is this look
        return ()
    finally:
        holder.transforms = original
    once = all(one.calls == timed[0].calls and one.calls for one in timed)
    return tuple(one.stage() for one in timed) if once else ()


def _list_of_transforms(dataset: Any) -> Any:
    """Return the one object among the data set's attributes that holds a list of operations to be done in order."""
    found: dict[int, Any] = {}
    held: Any
    for owner in _layers(dataset):
        for value in vars(owner).values():
            held = getattr(value, "transforms", None)
            plain = isinstance(held, list | tuple) and len(held) > 1 and type(value).__name__ == "Compose"
            if plain and all(callable(one) for one in held):
                found[id(value)] = value
    return next(iter(found.values())) if len(found) == 1 else None


def _layers(dataset: Any) -> Iterator[Any]:
    for _ in range(4):
        if not hasattr(dataset, "__dict__"):
            return
        yield dataset
        dataset = vars(dataset).get("dataset")


def _pixels(value: Any) -> int:
    """Return height times width of an image: of PIL, a tensor with channels first, an array with channels last."""
    with contextlib.suppress(Exception):
        if isinstance(value, torch.Tensor):
            return int(value.shape[-1] * value.shape[-2]) if value.dim() >= 2 else 0
        if hasattr(value, "getbands"):
            return int(value.size[0] * value.size[1])
        if hasattr(value, "__array_interface__"):
            return int(value.shape[0] * value.shape[1])
    return 0
