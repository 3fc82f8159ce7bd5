"""What a batch is made of: which of its parts hold one row a sample, and how the batch is put together again."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Layout", "Rows", "layout_of", "unknown_class"]

_PLAIN = (str, bytes, int, float, bool, type(None))
_Build = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """One part of a batch: a tensor of `shape` and `dtype` a sample, or values of `each_bytes` each (`dtype` None).

    `axes` is the order of its dimensions in memory, the batch's first.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None
    axes: tuple[int, ...]
    each_bytes: int = 64

    @property
    def num_bytes(self) -> int:
        """Return the bytes of one sample's row."""
        return self.each_bytes if self.dtype is None else self.dtype.itemsize * math.prod(self.shape)

    def in_memory(self, num_samples: int) -> tuple[int, ...]:
        """Return the shape of `num_samples` rows, dimensions in the order that they have in memory."""
        return (num_samples, *(self.shape[axis - 1] for axis in self.axes[1:]))


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a batch in the order in which they are met, and the function that puts a batch together."""

    rows: tuple[Rows, ...]
    build: _Build
    skeleton: object  # equal for batches that are built alike

    @property
    def num_bytes(self) -> int:
        """Return the bytes of one sample."""
        return sum(rows.num_bytes for rows in self.rows)


def layout_of(batch: Any, num_samples: int) -> tuple[Layout, list[Any]] | None:
    """Return the layout of `batch` and its parts; None when it holds something that is not one row a sample."""
    parts: list[Any] = []
    rows: list[Rows] = []
    try:
        skeleton, build = _walk(batch, num_samples, parts, rows)
    except _NotRows:
        return None
    return Layout(tuple(rows), build, skeleton), parts


def unknown_class(batch: Any) -> str:
    """Return the name of the first class in `batch` that is not taken apart here, empty where there is none."""
    if isinstance(batch, (torch.Tensor, *_PLAIN)):
        return ""
    if isinstance(batch, dict | list | tuple):
        inner = batch.values() if isinstance(batch, dict) else batch
        return next(filter(None, map(unknown_class, inner)), "")
    return type(batch).__name__


class _NotRows(Exception):
    pass


def _walk(value: Any, num_samples: int, parts: list[Any], rows: list[Rows]) -> tuple[object, _Build]:
    kind = type(value)
    if kind is tuple and _plain_list(list(value), num_samples):  # how default_collate gives strings of tuples
        _, build = _walk(list(value), num_samples, parts, rows)
        return "rows as a tuple", lambda made: tuple(build(made))
    if kind is torch.Tensor or _plain_list(value, num_samples):
        number = len(parts)
        rows.append(_rows(value, num_samples))
        parts.append(value)
        return "rows", lambda made: made[number]
    if kind in (dict, OrderedDict):
        keys = tuple(value)
        inner = [_walk(value[key], num_samples, parts, rows) for key in keys]
        builds = tuple(build for _, build in inner)
        return (kind, keys, tuple(part for part, _ in inner)), lambda made: kind(
            zip(keys, (build(made) for build in builds), strict=True)
        )
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        inner = [_walk(item, num_samples, parts, rows) for item in value]
        builds = tuple(build for _, build in inner)
        skeleton = (kind, tuple(part for part, _ in inner))
        if kind in (list, tuple) and all(part == "rows" for part, _ in inner):  # the quickest way, for most batches
            first, last = len(parts) - len(inner), len(parts)
            return skeleton, lambda made: kind(made[first:last])
        if kind is list:
            return skeleton, lambda made: [build(made) for build in builds]
        if kind is tuple:
            return skeleton, lambda made: tuple([build(made) for build in builds])
        return skeleton, lambda made: kind(*[build(made) for build in builds])
    raise _NotRows


def _plain_list(value: Any, num_samples: int) -> bool:
    return type(value) is list and len(value) == num_samples > 0 and all(type(item) in _PLAIN for item in value)


def _rows(value: Any, num_samples: int) -> Rows:
    if isinstance(value, list):
        return Rows((), None, ())
    dense = value.layout is torch.strided and not value.requires_grad and value.device.type == "cpu"
    if not dense or value.is_quantized or value.dim() == 0 or value.shape[0] != num_samples or value.__dict__:
        raise _NotRows
    axes = _axes(value)
    if axes is None:
        raise _NotRows
    return Rows(tuple(value.shape[1:]), value.dtype, axes)


def _axes(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dimensions of `value` from the widest stride on, None where it is not dense or a batch is not outer.

    Strides of dimensions of length 1 say nothing; where plain order fits, it is taken, as for no elements at all.
    """
    usual, strides = tuple(range(value.dim())), value.stride()
    if not value.numel():
        return usual
    widest = (0, *sorted(usual[1:], key=lambda axis: (-strides[axis], value.shape[axis] == 1, axis)))
    return next((axes for axes in (usual, widest) if _strides_of(value.shape, axes) == strides), None)


def _strides_of(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of dense memory in which dimensions lie in that order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis], step = step, step * max(1, shape[axis])
    return tuple(strides)
