"""The passes of one data set's loaders, so that each draws and seeds what the script's own would."""

import weakref
from collections.abc import Callable
from typing import Any

from flatout.pipeline.compile.intra_op_threads import IntraOpThreads
from flatout.pipeline.inspect.row_independence import RowIndependence
from flatout.torch_loader.persistent_seed import WorkerSeeds
from flatout.torch_loader.served_pass import ServedPass
from flatout.torch_loader.told_batches import Deliver, noted, tell

__all__ = ["PassState"]


class PassState:
    """What stays from pass to pass.

    Attributes:
        intra_op: finds on how many threads a batch is computed fastest.
        of_several: the same, of several batches at once.
    """

    def __init__(self, loader: Any, deliver: Deliver) -> None:
        """Begin with `loader`; `deliver` is told of batches that its own iterators make."""
        self.intra_op, self.of_several = IntraOpThreads(), IntraOpThreads()
        self._seeds, self._deliver = WorkerSeeds(), deliver
        self._latest: Callable[[], Any] = weakref.ref(loader)
        self._twins: Any = weakref.WeakKeyDictionary()  # loader -> the one that is walked in its place, with workers
        self._streams: Any = weakref.WeakKeyDictionary()  # loader -> streams of workers that stay

    @property
    def loader(self) -> Any:
        """Return the loader that was filled from or served last, None when it is gone."""
        return self._latest()

    def plain(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return the script's own iterator."""
        if loader.persistent_workers and loader in self._twins:  # workers that stay keep their seeds
            return self.filling(loader, iterate)
        return self._seeds.iterate(loader, loader, iterate)

    def filling(self, loader: Any, iterate: Callable[[Any], Any], stands: Callable[[], bool] = lambda: True) -> Any:
        """Return the script's own iterator, whose batches are delivered; `stands` as in `tell`."""
        self._latest = weakref.ref(loader)
        if not loader.num_workers:
            return tell(iterate(loader), None, self._deliver, RowIndependence, stands)
        if loader not in self._twins or not loader.persistent_workers:
            self._twins[loader] = noted(loader, RowIndependence)
        twin = self._twins[loader]
        return tell(self._seeds.iterate(loader, twin, iterate), twin, self._deliver, RowIndependence, stands)

    def served(self, loader: Any, make: Callable[..., Any], **how: Any) -> ServedPass:
        """Return a pass whose batches `make` gives; `how` as in `ServedPass`."""
        self._latest = weakref.ref(loader)
        walked = ServedPass(
            loader,
            make,
            seeded_before=self._seeds.begin(loader),
            compute=self.intra_op.run,
            earlier=self._streams.get(loader) if loader.persistent_workers else None,
            **how,
        )
        self._streams[loader] = walked.streams
        return walked
