"""One pass over a DataLoader with workers, served by another number of them, or by none.

Nothing is equal any more when the data set draws random numbers, for every worker has a stream of its own, or changes
while it is read, for every worker has a copy of its own. Each batch is therefore watched; when one draws or changes
something, the script's own workers are started from the seed that they would have had, make the batches again from the
first one, and go on. They would be copies of the data set as it was when the pass began: where it has changed since,
the training stops.
"""

import copy
from collections import deque
from typing import Any

from flatout.errors import ChangedTooLate
from flatout.torch_loader.handover import Handover, HandoverPlan
from flatout.torch_loader.worker_pool import IndicesAhead
from flatout.watch.dataset_state import random_states, restore_random_states, undrawn

__all__ = ["WorkerResizing"]


class WorkerResizing(Handover):
    """Where an iterator with workers gets its batches from instead."""

    @classmethod
    def iterator(cls, loader: Any, plan: HandoverPlan) -> Any:
        """Return an iterator over `loader` that draws from the random streams what its own would have drawn.

        None where other workers would give other batches.
        """
        import torch
        from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

        origin = plan.origins.begin_pass(loader, may_set_up=plan.workers > 0)
        if origin is None:
            plan.left_alone.add(loader)
            plan.stand_back(plan.origins.reasons.get(loader, f"{type(loader.dataset).__name__} may change unseen"))
            return None
        generator = loader.generator if loader.generator is not None else torch.default_generator
        seeds = torch.Generator()
        seeds.set_state(generator.get_state())
        alone = copy.copy(loader)
        vars(alone).update(num_workers=0, prefetch_factor=None, persistent_workers=False, _iterator=None)
        iterator: Any = _SingleProcessDataLoaderIter(alone)
        handover = cls(iterator, loader, plan)
        handover._seeds, handover._origin = seeds, origin
        handover._ahead = IndicesAhead(iterator._sampler_iter, None)
        if plan.workers:
            handover._start()
        else:
            handover._ahead.fill()  # workers would have been sent indices by now: the sampler draws here, not later
        handover._stage = WorkerResizing._taken if plan.workers else WorkerResizing._made
        return iterator

    def __init__(self, iterator: Any, loader: Any, plan: HandoverPlan) -> None:
        """Begin with nothing delivered."""
        super().__init__(iterator, loader, plan)
        self._seeds: Any = None
        self._history: deque[Any] = deque()
        self._own: Any = None  # the script's own workers, once they are needed

    def _taken(self) -> Any:
        """Take the next batch from the workers."""
        if self._pool is None:  # they could not be started
            return self._fall_back()
        try:
            theirs = self._pool.next()
        except StopIteration:
            self.finished = True
            raise
        if theirs.drew or theirs.against:
            return self._fall_back()
        return self._delivered(self._ahead.take(), theirs.batch)

    def _made(self) -> Any:
        """Make the next batch here."""
        index = self._ahead.take()
        self._check()
        before = random_states()
        data = self._here.make(index)
        self._check()
        if undrawn(before, random_states()):
            return self._delivered(index, data)
        restore_random_states(before)
        self._ahead.put_back(index)
        return self._fall_back()

    def _delivered(self, index: Any, batch: Any) -> Any:
        self._history.append(index)
        self._plan.hit()
        return batch

    def _looked(self) -> bool:
        return self._origin is not None

    def _check(self) -> None:
        """See to it that the data set is what the script's own workers would have a copy of.

        Raises:
            ChangedTooLate: it is not, and nobody has that any more.
        """
        if self._origin is None or self._origin.holds():
            return
        raise ChangedTooLate(
            f"{self._origin.changed or 'A setting of the process'} changed in a pass, after {len(self._history)} "
            f"batches of {type(self._loader.dataset).__name__} that flatout's workers had made.",
            "The script's own workers would have used a copy from before the change, which no longer exists.",
            "Change it between two passes, or leave out loader-workers.",
        )

    def _fall_back(self) -> Any:
        """Start the script's own workers, let them make again what was delivered, and go on with them."""
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        self._check()
        self._give_up("draws random numbers or changes in a worker, of which there would be another number")
        loader = copy.copy(self._loader)
        feed = "sampler" if loader.batch_sampler is None else "batch_sampler"
        indices = _Again(self._history, self._ahead)
        vars(loader).update({"generator": self._seeds, "_iterator": None, feed: indices})
        self._own = _MultiProcessingDataLoaderIter(loader)
        for _ in range(len(self._history)):
            self._own._next_data()
        self._stage = WorkerResizing._theirs
        return self._own._next_data()

    def _theirs(self) -> Any:
        return self._own._next_data()


class _Again:
    """The indices of the batches delivered, then those drawn ahead, then the rest."""

    def __init__(self, delivered: deque[Any], ahead: IndicesAhead) -> None:
        self._delivered = deque(delivered)
        self._ahead = ahead

    def __iter__(self) -> "_Again":
        return self

    def __next__(self) -> Any:
        return self._delivered.popleft() if self._delivered else self._ahead.take()
