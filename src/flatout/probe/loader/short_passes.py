"""Passes over loaders that end early, so that the ends of epochs lie in the steps that are looked at.

What a script does between two epochs (rows drawn anew, a curriculum, a validation, a checkpoint) is seen at the end of
an epoch only, and an epoch of a real training takes longer than anybody looks. All executions of a verification end the
same passes after the same batches, so they still compare with each other; a deep run ends one, when it has seen enough
of its steps.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from flatout.probe.core.seams import Hits, Seams

__all__ = ["ShortPasses"]

_ENDLESS = 10**15


class ShortPasses:
    """Ends passes of one thread; installed around what fixes put in place, and inside what notes the batches."""

    def __init__(self, thread: int, num_batches: int = _ENDLESS, *, first_whole: bool = False) -> None:
        """End each pass over a loader after `num_batches`; `first_whole`: but the first pass over each."""
        self._thread = thread
        self._num_batches = num_batches
        self._first_whole = first_whole
        self._walked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._left: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # batches, by iterator
        self._inside = False

    def install(self, seams: Seams) -> None:
        """Wrap loaders."""
        seams.wrap("torch.utils.data.dataloader:DataLoader.__iter__", self._iter)
        seams.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", self._next)

    def end_now(self, num_batches: int) -> bool:
        """End the pass under way before its next batch, later ones after `num_batches`; return whether there is one.

        Where several are under way, one may be drawn from for ever by `next()`, whose end the script does not expect.
        """
        under_way = [iterator for iterator, left in self._left.items() if left > 0]
        if len(under_way) != 1:
            return False
        self._left[under_way[0]] = 0
        self._num_batches = num_batches
        return True

    def _iter(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def iterate(loader: Any) -> Any:
            if get_ident() != self._thread or self._inside:
                return original(loader)
            hits.count += 1
            self._inside = True
            try:
                iterator = original(loader)
            finally:
                self._inside = False
            if self._first_whole and loader not in self._walked:
                self._walked.add(loader)
                self._left.pop(iterator, None)  # of workers that stay it is the same one in each pass
                return iterator
            if isinstance(iterator, _BaseDataLoaderIter):
                self._left[iterator] = self._num_batches
                return iterator
            return _ShortPass(iterator, self._num_batches)

        return iterate

    def _next(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def following(iterator: Any) -> Any:
            left = self._left.get(iterator)
            if left is None or get_ident() != self._thread or self._inside:
                return original(iterator)
            hits.count += 1
            if left <= 0:
                raise StopIteration
            self._inside = True
            try:
                batch = original(iterator)
            except StopIteration:
                self._left.pop(iterator, None)
                raise
            finally:
                self._inside = False
            self._left[iterator] = left - 1
            return batch

        return following


class _ShortPass:
    """An iterator of a fix's own kind, up to some batches; everything else is passed on to it."""

    def __init__(self, inner: Any, num_batches: int) -> None:
        self._inner = inner
        self._left = num_batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._left <= 0:
            raise StopIteration
        batch = next(self._inner)
        self._left -= 1
        return batch

    def __getattr__(self, name: str) -> Any:
        with contextlib.suppress(KeyError):
            return getattr(vars(self)["_inner"], name)
        raise AttributeError(name)
