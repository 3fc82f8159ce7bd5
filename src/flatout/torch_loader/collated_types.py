"""Types that torch's collate function knows how to put together, by the table in which it looks first."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data._utils.collate import collate, default_collate_fn_map

__all__ = ["collate_by", "collated"]


def collate_by(kind: type, function: Callable[..., Any]) -> None:
    """Let `default_collate` call `function(batch, collate_fn_map=...)` where the first sample is of this very type.

    This is the way that torch's documentation of `default_collate` gives for types of one's own.
    """
    default_collate_fn_map[kind] = function


def collated(values: Sequence[Any], collate_fn_map: Any) -> Any:
    """Return the values put together by such a table."""
    return collate(values, collate_fn_map=collate_fn_map)
