"""Batches drawn from a loader as fast as it gives them, with what each of them took.

A pass with workers begins with as many batches at once as there are workers, since these begin together. They are the
start of the pass and no part of its speed, unless passes are so short that little else is left: then whole passes are
what is timed, start included.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatout.probe.loader.loading import batch_size, tensors_in
from flatout.schema.loader_figures import Figure, LoaderPauses

__all__ = ["DrawnBatches", "Pacing", "draw"]

_BLOCKS = 8
_PAUSE, _PAUSE_S = 5.0, 0.01  # a wait so many times the usual one, and at least so long
_MOST_PASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How many batches are drawn: `batches`, fewer when the clock says `until_s`, but `least` until `latest_s`."""

    batches: int
    until_s: float
    least: int = 2
    latest_s: float = float("inf")

    def is_over(self, count: int) -> bool:
        """Return whether `count` batches are enough by now."""
        now = time.perf_counter()
        return count >= self.batches or now >= (self.until_s if count >= self.least else self.latest_s)


@dataclass
class _Pass:
    """One pass over the loader, whole or cut off."""

    first_s: float = 0.0  # from its beginning to its first batch
    seconds: list[float] = field(default_factory=list)  # each batch after the first
    samples: list[int] = field(default_factory=list)  # of all batches
    num_bytes: list[int] = field(default_factory=list)


class DrawnBatches:
    """What the batches of some passes took."""

    def __init__(self, workers: int, known_size: int = 0) -> None:
        """Take the number of workers, and of samples in a batch where that is known."""
        self._start = max(1, workers)
        self._known_size = known_size
        self.passes: list[_Pass] = []

    @property
    def count(self) -> int:
        """Batches drawn so far."""
        return sum(len(one.samples) for one in self.passes)

    def note(self, batch: Any) -> None:
        """Take the size of a batch of the current pass."""
        one = self.passes[-1]
        one.samples.append(self.size(batch))
        one.num_bytes.append(sum(tensor.nbytes for tensor in tensors_in(batch)))

    def size(self, batch: Any) -> int:
        """Return the samples of a batch: its first dimension, unless that is none of samples."""
        found = batch_size(batch)
        return found if 0 < found <= self._known_size or not self._known_size else self._known_size

    def first_batch_s(self) -> Figure | None:
        """Return how long passes took to their first batch."""
        return Figure.of([one.first_s for one in self.passes if one.samples])

    def samples_s(self) -> Figure | None:
        """Return samples a second."""
        return self._rate(lambda one: one.samples)

    def mb_s(self) -> Figure | None:
        """Return megabytes of tensors a second; None where batches hold none."""
        return self._rate(lambda one: [number / 1e6 for number in one.num_bytes])

    def pauses(self) -> LoaderPauses | None:
        """Return the waits that were much longer than others."""
        waits = [each for one in self.passes for each in one.seconds]
        whole = sum(waits)
        if not waits:
            return None
        usual = self._start * whole / len(waits)  # workers that keep step give their batches at once
        found = [each for each in waits if each > max(_PAUSE_S, _PAUSE * usual)]
        return LoaderPauses(
            count=len(found), longest_s=max(found, default=0.0), share=sum(found) / whole if whole else 0.0,
            n=len(waits),
        )  # fmt: skip

    def _rate(self, amounts: Callable[[_Pass], list[Any]]) -> Figure | None:
        rates = [amount / seconds for seconds, amount in self._blocks(amounts) if seconds > 0]
        return Figure.of(rates) if any(rates) else None

    def _blocks(self, amounts: Callable[[_Pass], list[Any]]) -> list[tuple[float, float]]:
        """Return seconds and amount of blocks: of consecutive batches, or of whole passes where these are short."""
        steady: list[tuple[float, float]] = []
        for one in self.passes:
            steady += zip(one.seconds[self._start - 1 :], amounts(one)[self._start :], strict=False)
        short = len(self.passes) > 1 and 2 * len(steady) < self.count
        if short or len(steady) < self._start:
            return [(one.first_s + sum(one.seconds), float(sum(amounts(one)))) for one in self.passes if one.samples]
        size = -(-max(1, len(steady) // _BLOCKS) // self._start) * self._start  # whole rounds of the workers
        found = []
        for begin in range(0, len(steady) - size + 1, size):
            block = steady[begin : begin + size]
            found.append((sum(seconds for seconds, _ in block), float(sum(amount for _, amount in block))))
        return found


def draw(loader: Any, pacing: Pacing, *, workers: int, known_size: int = 0) -> DrawnBatches:
    """Draw batches, in several passes of a loader that has fewer. What the loader raises comes through."""
    drawn = DrawnBatches(workers, known_size)
    while len(drawn.passes) < _MOST_PASSES:
        began = time.perf_counter()
        iterator = iter(loader)
        drawn.passes.append(_Pass())
        if not _draw_pass(drawn, iterator, began, pacing):
            break
    return drawn


def _draw_pass(drawn: DrawnBatches, iterator: Any, before: float, pacing: Pacing) -> bool:
    """Draw one pass; return whether there may be another one."""
    one = drawn.passes[-1]
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return bool(one.samples) and not pacing.is_over(drawn.count)
        now = time.perf_counter()
        if one.samples:
            one.seconds.append(now - before)
        else:
            one.first_s = now - before
        drawn.note(batch)
        if pacing.is_over(drawn.count):
            return False
        before = time.perf_counter()
