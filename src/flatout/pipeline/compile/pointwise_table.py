"""Pointwise operations on bytes as a table of 256 values a channel: the same bits on every device.

The values are made by the operations themselves, on the CPU. What is done elsewhere is looking them up, and that needs
no arithmetic that another device might round in another way.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flatout.native import native
from flatout.pipeline.compile.kernels.core.kernel import Kernel, RandomKernel, Unsuited
from flatout.watch.dataset_state import same

__all__ = ["Table", "num_pointwise", "table_of"]

_POINTWISE = frozenset(("ToTensor", "PILToTensor", "ToImage", "ToDtype", "ConvertImageDtype", "Normalize", "float"))
_SEED = 12_289


class Table:
    """What some operations make of bytes, by channel; with the shape and strides that they give."""

    def __init__(self, values: Tensor, moves_channels: bool) -> None:
        """Take `values` of shape (channels, 256); `moves_channels`: channels are the last axis, and become the first.

        With one channel, the values hold for all.
        """
        one = bool((values == values[:1]).all())
        self._values = (values[:1] if one else values).contiguous()
        self._there: dict[torch.device, tuple[Tensor, Tensor]] = {}  # all values, and where each channel's begin
        self._moves = moves_channels
        self._default = torch.get_default_dtype()

    def run(self, batch: Tensor) -> Tensor:
        """Return what the operations make of `batch`, uint8 of any device.

        Raises:
            Unsuited: the values are made for another default type of numbers.
        """
        self.check()
        made = native.operated(native.look_up(self._values), batch) if self._moves else None
        if made is not None:
            return made
        values, starts = self._there.get(batch.device) or self._brought(batch.device)
        seen = _channels_first(batch) if self._moves else batch
        places = seen.to(torch.int32, memory_format=torch.contiguous_format)
        if len(starts) > 1:
            places += starts
        return torch.index_select(values, 0, places.view(-1)).view(seen.shape)

    @property
    def values(self) -> Tensor:
        """Return what becomes of each byte: [channels, 256], or [1, 256] for all channels."""
        return self._values

    def check(self) -> None:
        """Look whether the values still hold.

        Raises:
            Unsuited: they are made for another default type of numbers.
        """
        if torch.get_default_dtype() is not self._default:
            raise Unsuited("torch's default type has changed")

    def _brought(self, device: torch.device) -> tuple[Tensor, Tensor]:
        starts = torch.arange(0, self._values.numel(), 256, dtype=torch.int32).view(-1, 1, 1)
        self._there[device] = self._values.view(-1).to(device), starts.to(device)
        return self._there[device]


def num_pointwise(steps: Sequence[Kernel | RandomKernel]) -> int:
    """Return how many of `steps`, at their end, are known to treat each number by itself, or by its channel."""
    number = 0
    for step in reversed(steps):
        if isinstance(step, RandomKernel) or step.name not in _POINTWISE:
            break
        number += 1
    return number


def table_of(steps: Sequence[Kernel], row: Tensor) -> Table | None:
    """Return the table of what `steps` make of batches of rows like `row`, shape (1, ...); None where there is none.

    It is compared with the steps on random bytes of that shape: values, type and strides.
    """
    if row.dtype is not torch.uint8 or not row.numel() or not steps:
        return None
    try:
        some = torch.randint(0, 256, (3, *row.shape[1:]), generator=torch.Generator().manual_seed(_SEED))
        given = torch.empty_strided((3, *row.shape[1:]), _strides(row), dtype=torch.uint8).copy_(some)
        wanted = _run(steps, given)
        moves = wanted.shape != given.shape
        made = Table(_values(steps, row, moves), moves)
        return made if same(made.run(given), wanted) else None
    except (Unsuited, RuntimeError, IndexError, ValueError):  # bytes in a shape that the steps do not take
        return None


def _strides(row: Tensor) -> tuple[int, ...]:
    """Return the strides of more such rows, one after the other."""
    return (row[0].numel(), *row.stride()[1:])


def _values(steps: Sequence[Kernel], row: Tensor, moves: bool) -> Tensor:
    """Return what the steps make of each byte in each channel, shape (channels, 256)."""
    every = torch.arange(256, dtype=torch.uint8)
    if moves and row.dim() == 4:
        channels = row.shape[3]
        given = every.view(1, 16, 16, 1).expand(1, 16, 16, channels)
    elif moves or row.dim() < 4:
        channels = 1
        given = every.view(*(1,) * (row.dim() - 1), 256) if row.dim() != 3 else every.view(1, 16, 16)
    else:
        channels = row.shape[-3]
        given = every.view(*(1,) * (row.dim() - 3), 1, 16, 16).expand(*(1,) * (row.dim() - 3), channels, 16, 16)
    return _run(steps, given.contiguous()).contiguous().view(channels, 256)


def _channels_first(batch: Tensor) -> Tensor:
    return batch.unsqueeze(1) if batch.dim() == 3 else batch.permute(0, *range(3, batch.dim()), 1, 2)


def _run(steps: Sequence[Kernel], batch: Tensor) -> Tensor:
    for step in steps:
        batch = step.run(batch)
    if not math.prod(batch.shape):
        raise Unsuited("an empty batch")
    return batch
