"""Iterate the training loader without any training: what it could deliver if nothing consumed its batches.

At the end of an execution whose results are thrown away anyway, batch after batch is taken from the current pass, and
from further passes where that one ends. Batches that were ready before are not counted.
"""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flatout.schema.run import Step
from flatout.torch_loader.pass_start import drawn_from

if TYPE_CHECKING:
    from flatout.probe.core.seams import Hits, Seams

__all__ = ["LoaderAlone"]

_BLOCKS, _FEWEST = 8, 4
_MOST_PASSES = 20

Write = Callable[[str, Mapping[str, object]], None]


class LoaderAlone:
    """Follows an alternation, and draws from the loader once that is over."""

    def __init__(self, write: Write, arm: int, seconds: float) -> None:
        """Take what writes records, the number of the arm as which this one is written, and how long it may take."""
        self._write, self._arm, self._seconds = write, arm, seconds
        self._follow: Callable[[Step], bool] = lambda step: True
        self._steps_ms: list[float] = []  # of the script as it is, as the arms found it
        self._next: Callable[[Any], Any] = next
        self._loaders: Any = weakref.WeakKeyDictionary()  # iterator -> its loader
        self._drawn: dict[int, list[Any]] = {}  # id of a loader -> how often it was asked, it, its latest iterator

    def install(self, seams: "Seams") -> None:
        """Note which loaders are drawn from."""
        seams.wrap("torch.utils.data.dataloader:DataLoader.__iter__", self._begins)
        seams.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", self._asks)
        seams.wrap("flatout.torch_loader.pass_start:begin_pass", self._begins)

    def write(self, kind: str, body: Mapping[str, object]) -> None:
        """Pass a record of the alternation on; the script's own steps in it are what this is compared with."""
        if kind == "pair":
            self._steps_ms.append(float(str(body["baseline_ms"])))
        self._write(kind, body)

    def behind(self, follow: Callable[[Step], bool]) -> Callable[[Step], bool]:
        """Return what follows the steps: as `follow` does until that is over."""
        self._follow = follow
        return self.step

    def step(self, step: Step) -> bool:
        """Take one finished step; return True when all is measured."""
        if not self._follow(step):
            return False
        with contextlib.suppress(Exception):  # of the script's own data set: what was measured before is written
            self._measure()
        return True

    def _begins(self, original: Any, _hits: "Hits") -> Any:
        def call(loader: Any) -> Any:
            iterator = original(loader)
            self._loaders[drawn_from(iterator)] = loader
            return iterator

        return call

    def _asks(self, original: Any, _hits: "Hits") -> Any:
        self._next = original

        def call(iterator: Any) -> Any:
            loader = self._loaders.get(iterator)
            if loader is not None:
                known = self._drawn.setdefault(id(loader), [0, loader, iterator])
                known[0] += 1
                known[2] = iterator
            return original(iterator)

        return call

    def _measure(self) -> None:
        if not self._drawn or len(self._steps_ms) < _FEWEST:
            return
        _, loader, iterator = max(self._drawn.values(), key=lambda known: known[0])
        self._write("begin", {"arm": self._arm})
        taken = list(self._batches_ms(loader, iterator))
        if len(taken) < _FEWEST:
            return
        number = min(_BLOCKS, len(taken), len(self._steps_ms))
        size = len(taken) // number
        means = [sum(taken[place * size : (place + 1) * size]) / size for place in range(number)]
        for before, mean in zip(self._steps_ms[-number:], means, strict=True):
            self._write("pair", {"arm": self._arm, "baseline_ms": before, "candidate_ms": mean})
        self._write("arm", {"arm": self._arm, "decision": "enough"})

    def _batches_ms(self, loader: Any, iterator: Any) -> Iterator[float]:
        """Yield what each batch took, those left out that workers had made before."""
        until, passes = time.perf_counter() + self._seconds, 0
        ready = loader.num_workers * (loader.prefetch_factor or 2)
        while time.perf_counter() < until and passes < _MOST_PASSES:
            began = time.perf_counter()
            try:
                self._next(iterator)
            except StopIteration:
                iterator, passes = drawn_from(iter(loader)), passes + 1
                ready = loader.num_workers * (loader.prefetch_factor or 2)
                continue
            if ready > 0:
                ready -= 1
            else:
                yield 1e3 * (time.perf_counter() - began)
