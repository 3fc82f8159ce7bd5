"""`flatout.objects`: a data set of the objects of stores, as bytes."""

import copy
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from flatout.errors import BadObject
from flatout.pipeline.read.objects.listed_objects import found_objects
from flatout.pipeline.read.objects.object_source import ObjectList, ObjectSource
from flatout.watch.unwritten import UnwrittenMemory

__all__ = ["ObjectDataset", "objects"]

_MOST_IN_FLIGHT = 1024
_Url = str | os.PathLike[str]
_Transform = Callable[[bytes], Any]


class ObjectDataset(Dataset[Any]):
    """Objects of stores as bytes, each as it was when it was first read.

    Attributes:
        transform: called on the bytes of each object, if it is not None.
        labels: what makes a pair with each sample, if it is not None.
    """

    def __init__(self, listed: ObjectList, transform: _Transform | None, labels: Sequence[Any] | None) -> None:
        """Read nothing yet."""
        self.transform, self.labels = transform, labels
        self._listed = listed
        self._source = UnwrittenMemory(ObjectSource(listed))

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URLs of all objects, in order."""
        return tuple(self._listed.urls)

    def __len__(self) -> int:
        return len(self._listed.urls)

    def __getitem__(self, index: Any) -> Any:
        place = self._place(index)
        return self._sample(place, self._source.held.one(place))

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Return the samples of a batch, whose objects are asked for at once."""
        places = [self._place(index) for index in indices]
        read = self._source.held.several(places)
        return [self._sample(place, data) for place, data in zip(places, read, strict=True)]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} objects, the first {self._listed.urls[0]}; {self._source.held.cache}>"

    def __copy__(self) -> "ObjectDataset":
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> "ObjectDataset":
        """Return another one of the same objects, which are read once for both."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.transform = copy.deepcopy(self.transform, memo)
        made.labels = copy.deepcopy(self.labels, memo)
        return made

    def __reduce__(self) -> Any:
        """Be a note of what is read: another process reads for itself, and shares what is kept on disk."""
        return ObjectDataset, (self._listed, self.transform, self.labels)

    def _place(self, index: Any) -> int:
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"object {place} of {len(self)}")
        return place % len(self)

    def _sample(self, place: int, data: bytes) -> Any:
        made = data if self.transform is None else self.transform(data)
        return made if self.labels is None else (made, self.labels[place])


def objects(
    urls: _Url | Sequence[_Url],
    transform: _Transform | None = None,
    *,
    labels: Sequence[Any] | None = None,
    ranges: Sequence[tuple[int, int] | None] | None = None,
    folder: str | os.PathLike[str] | None = None,
    max_bytes: int | None = None,
    in_flight: int = 64,
    immutable: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> ObjectDataset:
    """Return a data set of objects as bytes, one a sample; docs/howto/objects.md says more.

    `urls`: URLs of objects (`s3://`, `gs://`, `https://`, any that fsspec knows) and paths of files; or one folder or
    pattern (`"s3://bucket/**/*.jpg"`). `transform(data)` makes the sample of the bytes. `labels`: one for each object,
    then a sample is a pair. `ranges`: for each object the bytes that are wanted, `(start, stop)`, or None for all.

    The objects of a batch are asked for at once, `in_flight` at a time, on threads of each process. What failed for a
    moment (503, a connection that is reset) is asked for again. Objects stay on disk in `folder` (None:
    `~/.cache/flatout/objects`), at most `max_bytes` (None: 20 GB, or half of what is free; 0: none), for all processes
    and later runs. A run asks for each once, whether it is as it was; never, if they are `immutable`.

    Raises:
        BadObject: a folder or pattern names no objects. Later, where a sample is asked for: its object is missing, may
            not be read, does not come whole, or has changed since it was first read.
        ValueError: labels or ranges are not as many as objects, or an argument is out of its bounds.
    """
    options = dict(storage_options or {})
    named = (
        found_objects(os.fspath(urls), options)
        if isinstance(urls, str | os.PathLike)
        else [os.fspath(url) for url in urls]
    )
    if not named:
        raise BadObject("0 objects are named.", "The list of URLs is empty.", "Name at least one.")
    _check(named, labels, ranges, in_flight)
    path = None if folder is None else Path(folder).absolute()
    listed = ObjectList([*map(_absolute, named)], ranges, options, path, max_bytes, in_flight, immutable)
    return ObjectDataset(listed, transform, labels)


def _absolute(url: str) -> str:
    return url if "://" in url else os.path.abspath(os.path.expanduser(url))


def _check(urls: list[Any], labels: Any, ranges: Any, in_flight: int) -> None:
    wrong = next((url for url in urls if not isinstance(url, str)), None)
    if wrong is not None:
        raise TypeError(f"{wrong!r} is no URL; it must be a text or a path")
    for name, given in (("labels", labels), ("ranges", ranges)):
        if given is not None and len(given) != len(urls):
            raise ValueError(f"{len(given)} {name} for {len(urls)} objects; there must be one for each")
    for each in ranges or ():
        if each is not None and not 0 <= each[0] < each[1]:
            raise ValueError(f"the range {each} is none; it must be (start, stop) with 0 <= start < stop")
    if not 1 <= in_flight <= _MOST_IN_FLIGHT:
        raise ValueError(f"in_flight is {in_flight}; it must be 1 to {_MOST_IN_FLIGHT}")
