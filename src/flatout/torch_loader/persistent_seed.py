"""The seed of workers that stay: drawn once for a loader, at its first pass, whoever makes the batches of which pass.

The base seed of a loader's workers is drawn where its iterator is made (`_BaseDataLoaderIter`), which is once where
workers stay. A pass that is served draws it in their place; where the script's own workers take over after that, they
get that seed, and the script's random stream is not drawn from again.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["WorkerSeeds"]


class WorkerSeeds:
    """From where the seeds of loaders were drawn."""

    def __init__(self) -> None:
        """Begin with none."""
        self._drawn_at: Any = weakref.WeakKeyDictionary()  # loader -> the state of its generator before

    def begin(self, loader: Any) -> bool:
        """Say that a pass over `loader` begins, which draws a seed; return whether its workers stay and have one."""
        if not loader.persistent_workers:
            return False
        if loader in self._drawn_at or loader._iterator is not None:
            return True
        own = loader.generator if loader.generator is not None else torch.default_generator
        self._drawn_at[loader] = own.get_state()
        return False

    def iterate(self, loader: Any, walked: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return what `iterate` gives of `walked`, which is `loader` or stands for it; a seed is not drawn twice."""
        if not self.begin(loader) or walked._iterator is not None:
            return iterate(walked)
        again = torch.Generator()
        if loader in self._drawn_at:
            again.set_state(self._drawn_at[loader])
        else:  # its own workers, of a pass that was not seen, have their seed
            again.manual_seed(loader._iterator._base_seed)
        own = walked.generator
        walked.generator = again
        try:
            return iterate(walked)
        finally:
            walked.generator = own
