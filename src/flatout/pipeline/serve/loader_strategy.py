"""What all that serves a loader has in common, and the two that leave its iterators to the script."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.call_cache import CallCache
from flatout.pipeline.cache.disk.disk_cache import DiskCache
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.cache.sample_cache import SampleCache
from flatout.pipeline.serve.pass_state import PassState
from flatout.pipeline.serve.served_loader import ServedLoader
from flatout.pipeline.serve.staleness import Staleness
from flatout.torch_loader.sampler_order import Indices

__all__ = ["PROOFS", "KeptSamples", "LoaderStrategy", "Passthrough"]

PROOFS = 2
"""Samples that are asked for again at the start of a pass."""


class LoaderStrategy(ABC):
    """Serves a loader until another one takes its place; passes that began before then ask that one.

    Attributes:
        reason: why the script's own loader goes on by itself; empty elsewhere.
        kept_rows: the rows that are kept, if any.
        samples: the samples that are kept in place of rows.
        on_disk: what keeps them between runs.
        successor: what took its place.
    """

    reason = ""
    samples: SampleCache | CallCache | None = None
    on_disk: DiskCache | None = None

    def __init__(self, served: ServedLoader, passes: PassState, staleness: Staleness) -> None:
        """Keep nothing yet."""
        self._served, self._passes, self.staleness = served, passes, staleness
        self.kept_rows: RowCache = served.row_cache()
        self.successor: LoaderStrategy | None = None

    @abstractmethod
    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself."""

    def make(self, indices: Indices, stream: torch.Generator | None) -> Any:
        """Return the batch of `indices`; what is random is drawn from `stream`, or torch's own."""
        return self._served.as_plain(indices, stream)

    def keep(self, indices: torch.Tensor, batch: Any, against: str) -> str:
        """Keep what a batch of the script's own iterator holds; return why nothing more is to be kept.

        `against`: what speaks against it by how it was made, "" for nothing.
        """
        return ""

    def take(self, loader: Any) -> None:
        """Take the data set as it is now: what is kept stands until that changes."""
        self.staleness.take(loader)

    def begin_pass(self) -> str:
        """Look at everything, and hold some of what is kept against the data set; return what has changed."""
        return ""

    def stands(self) -> bool:
        """Return whether what is kept is what the data set would give for the next batch."""
        return (
            self.staleness.stands(direct=self.kept_rows.direct) if self.successor is None else self.successor.stands()
        )

    def give_way(self, successor: "LoaderStrategy | None" = None) -> None:
        """Keep nothing any more; `successor` serves from now on."""
        self.kept_rows = self._served.row_cache()
        self.successor = successor

    def _refuse(self, reason: str) -> None:
        if self.successor is None:
            self.give_way(Passthrough(self._served, self._passes, self.staleness, reason))


class Passthrough(LoaderStrategy):
    """The script's own loader, which goes on by itself."""

    def __init__(self, served: ServedLoader, passes: PassState, staleness: Staleness, reason: str) -> None:
        """Do nothing, for `reason`."""
        super().__init__(served, passes, staleness)
        self.reason = reason

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return the script's own iterator."""
        return self._passes.plain(loader, iterate)

    def stands(self) -> bool:
        """Return that nothing is kept."""
        return False


class KeptSamples(LoaderStrategy):
    """Keeps samples one by one; the script's own iterator walks, draws and collates."""

    def __init__(
        self, served: ServedLoader, passes: PassState, staleness: Staleness, samples: SampleCache | CallCache
    ) -> None:
        """Serve from `samples`."""
        super().__init__(served, passes, staleness)
        self.samples = samples

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return the script's own iterator, which asks what is kept; in workers, the data set."""
        walked = self._passes.plain(loader, iterate)
        return walked if loader.num_workers or self.samples is None else self.samples.walked(walked)

    def take(self, loader: Any) -> None:
        """Take the data set as it is now; transforms that are called anew each time may do as they like."""
        if self.samples is not None:
            self.staleness.take(loader, self.samples.weakly_left_out())
            self.samples.fresh = self.staleness.fresh

    def give_way(self, successor: LoaderStrategy | None = None) -> None:
        """Keep nothing any more; `successor` serves from now on."""
        super().give_way(successor)
        self.samples = None

    def begin_pass(self) -> str:
        """Look at everything, and ask for some samples again; return what has changed."""
        stale = self.staleness.begin_pass()
        if not stale and self.staleness.due and self.samples is not None:
            with self.staleness.pace.proving(self.staleness.sees_all):
                against = self.samples.prove(PROOFS)
            if against:
                self._refuse(against)
        return stale
