"""Rows of a data set whose transform is given many of them as one dictionary of lists, as Hugging Face's are."""

from typing import Any

from flatout.pipeline.inspect.determinism import detached
from flatout.pipeline.read.sample_copies import Mark, loaded
from flatout.watch.components import attributes_of
from flatout.watch.dataset_state import fingerprint

__all__ = ["AroundBatches", "transforms_batches"]

_ONLY = "flatout"

Row = tuple[dict[str, Any], Any]


def transforms_batches(dataset: Any) -> bool:
    """Return whether `dataset` hands rows to a function of the script's own that it was told by `set_transform`."""
    own = attributes_of(dataset) or {}
    told = own.get("_format_kwargs")
    return own.get("_format_type") == "custom" and type(told) is dict and callable(told.get("transform"))


class AroundBatches:
    """Asks a copy of such a data set for rows, the transform left out."""

    def __init__(self, dataset: Any) -> None:
        """Take a data set of which `transforms_batches` holds."""
        self._asked = detached(dataset)
        self._given: list[dict[str, Any]] = []
        vars(self._asked)["_format_kwargs"] = {**dataset._format_kwargs, "transform": self._transform}

    def _transform(self, batch: dict[str, Any]) -> dict[str, Any]:
        loaded(batch)
        self._given.append(batch)
        return {_ONLY: [Mark()]}

    def read(self, _dataset: Any, index: int) -> Row:
        """Return what the transform would be given of a row."""
        self._given.clear()
        made = self._asked.__getitems__([index])
        if len(self._given) != 1 or type(self._given[0]) is not dict or len(made) != 1 or list(made[0]) != [_ONLY]:
            raise ValueError("what the transform gives does not come out untouched")
        if any(len(values) != 1 for values in self._given[0].values()):
            raise ValueError("a row is not one value a column")
        return {name: values[0] for name, values in self._given.pop().items()}, None

    def steady(self, dataset: Any, index: int) -> bool:
        """Return whether reading changes nothing."""
        self.read(dataset, index)
        self._given.clear()
        before = fingerprint(self._asked)
        self.read(dataset, index)
        self._given.clear()
        return fingerprint(self._asked) == before

    def finish(self, dataset: Any, entry: Row) -> Any:
        """Return the row as it comes alone."""
        return self.finish_many(dataset, [entry])[0]

    def left_out(self, dataset: Any) -> Any:
        """Return the transform that the data set was told."""
        return dataset._format_kwargs.get("transform")

    def finish_many(self, dataset: Any, entries: list[Row]) -> list[Any]:
        """Return rows that come in one batch, transformed by the data set's own."""
        batch = {name: [row[name] for row, _ in entries] for name in entries[0][0]}
        made = dataset._format_kwargs["transform"](batch)
        number = len(made[next(iter(made))])
        return [{name: values[place] for name, values in made.items()} for place in range(number)]
