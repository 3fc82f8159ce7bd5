"""The kinds of columns that tables have, by Arrow's types: what a value is in a sample, and how it is stored."""

import math
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["ColumnKind", "kind_of"]

_WIDTHS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}
_FLOATS = {16: torch.float16, 32: torch.float32, 64: torch.float64}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What the values of a column are.

    Attributes:
        form: `numbers`, rows of one shape each; `lists`, one row of numbers of any length each; `text`; `bytes`;
            `objects`, whatever Python object Arrow makes of a value.
        dtype: of numbers and lists.
        shape: of one row of numbers.
    """

    form: str
    dtype: torch.dtype = torch.uint8
    shape: tuple[int, ...] = ()

    @property
    def row_items(self) -> int:
        """Return how many numbers a row of `numbers` has."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row of `numbers`, 0 for rows whose size is not known by their kind."""
        return self.row_items * self.dtype.itemsize if self.form == "numbers" else 0


_OBJECTS = ColumnKind("objects")


def kind_of(arrow: Any) -> ColumnKind:
    """Return the kind of a column of this Arrow type.

    Dates, times and durations are numbers: what Arrow counts, in the unit of the type. A dictionary stands for its
    values, an extension type for what it stores.
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow, pa.FixedShapeTensorType):
        return _of_tensors(arrow)
    if isinstance(arrow, pa.BaseExtensionType):
        return kind_of(arrow.storage_type)
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return kind_of(arrow.value_type)
    dtype = _number(arrow)
    if dtype is not None:
        return ColumnKind("numbers", dtype)
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return ColumnKind("text")
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow):
        return ColumnKind("bytes")
    if types.is_fixed_size_binary(arrow) and not types.is_decimal(arrow):
        return ColumnKind("bytes")
    return _of_lists(arrow)


def _of_tensors(arrow: Any) -> ColumnKind:
    dtype, order = _number(arrow.value_type), arrow.permutation
    plain = order is None or list(order) == sorted(order)
    return _OBJECTS if dtype is None or not plain else ColumnKind("numbers", dtype, tuple(arrow.shape))


def _of_lists(arrow: Any) -> ColumnKind:
    import pyarrow as pa

    types = pa.types
    if types.is_fixed_size_list(arrow) and (dtype := _number(arrow.value_type)) is not None:
        return ColumnKind("numbers", dtype, (arrow.list_size,))
    if (types.is_list(arrow) or types.is_large_list(arrow)) and (dtype := _number(arrow.value_type)) is not None:
        return ColumnKind("lists", dtype)
    return _OBJECTS


def _number(arrow: Any) -> torch.dtype | None:
    """Return torch's type for what Arrow holds as numbers of one width, None for all else."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(arrow):
        return torch.bool
    if types.is_floating(arrow):
        return _FLOATS[arrow.bit_width]
    if types.is_unsigned_integer(arrow):
        return _UNSIGNED[arrow.bit_width]
    counted = types.is_date(arrow) or types.is_time(arrow) or types.is_timestamp(arrow) or types.is_duration(arrow)
    return _WIDTHS[arrow.bit_width] if types.is_signed_integer(arrow) or counted else None
