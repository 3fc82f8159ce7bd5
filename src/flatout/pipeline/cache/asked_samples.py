"""What an iterator of the script's own asks in place of its data set."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["let_ask"]

Many = Callable[[list[int]], list[Any]]
"""Returns samples by their indices."""


class _Asked:
    """Stands for a data set, which it keeps alive as long as the iterator lives."""

    def __init__(self, many: Many, dataset: Any) -> None:
        self._many, self._alive = many, dataset

    def __getitem__(self, index: int) -> Any:
        return self._many([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return self._many(list(indices))


def let_ask(iterator: Any, many: Many, dataset: Any) -> Any:
    """Let an iterator without workers ask `many` for samples of `dataset`; return it."""
    iterator._dataset_fetcher.dataset = _Asked(many, dataset)
    return iterator
