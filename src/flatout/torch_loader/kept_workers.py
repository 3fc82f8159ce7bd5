"""Workers of one loader that stay from pass to pass.

The script gets an iterator of its own for each pass, a shell that has drawn what the script's own would have drawn; the
batches behind it come from one iterator of torch's that lives as long as the loader.
"""

import contextlib
import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

from flatout.torch_loader.lookahead import Peeking
from flatout.torch_loader.reseeding import Begin, NotingCollate, Reseed
from flatout.torch_loader.worker_origins import WorkerOrigin
from flatout.watch.first_use import begins_alike

__all__ = ["KeptWorkers", "StayingWorkers"]

_IN_VAIN = 3  # passes one after the other whose workers could not stay: then the loader is left alone


class KeptWorkers:
    """The workers that stay, for each loader."""

    def __init__(self, hit: Callable[[], None]) -> None:
        """Have none; `hit` is called for each pass that begins with workers of the one before."""
        self._hit = hit
        self._kept: weakref.WeakKeyDictionary[Any, StayingWorkers] = weakref.WeakKeyDictionary()
        self._in_vain: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._origins: weakref.WeakKeyDictionary[Any, WorkerOrigin] = weakref.WeakKeyDictionary()
        self.refused: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # loaders, and why

    def may_serve(self, loader: Any) -> bool:
        """Look at the data set; return whether a pass over `loader` may be served, by new workers if need be."""
        staying = self._kept.get(loader)
        if (staying is not None and staying.busy) or self._in_vain.get(loader, 0) >= _IN_VAIN:
            self.refused.setdefault(loader, "is walked twice at once")
            return False
        if staying is not None and staying.stands(loader):
            return True
        if staying is not None:
            self._kept.pop(loader).end()
            self._in_vain[loader] = self._in_vain.get(loader, 0) + 1
            self.refused[loader] = f"could not keep its workers at {self._in_vain[loader]} passes in a row"
        origin = WorkerOrigin.of(loader) if self._in_vain.get(loader, 0) < _IN_VAIN else None
        unlike = loader not in self._origins and not _is_stream(loader) and not begins_alike(loader.dataset)
        if origin is None or unlike:
            self._in_vain[loader] = _IN_VAIN
            unseen = "reads what may change unseen"
            self.refused.setdefault(loader, unseen if origin is None else "has samples that depend on the first one")
            return False
        self._origins[loader] = origin
        return True

    def iterator(self, loader: Any) -> Any:
        """Return an iterator for a pass that may be served."""
        iterator, seeds = StayingWorkers.shell(loader)
        staying = self._kept.get(loader)
        if staying is not None and staying.begin_again(iterator):
            self._in_vain[loader] = 0
            self._hit()
        else:
            self._in_vain[loader] = self._in_vain.get(loader, 0) + (staying is not None)
            self._kept[loader] = StayingWorkers(loader, self._origins[loader], iterator, seeds)
        return iterator


class StayingWorkers:
    """The workers, and the pass that they work for."""

    @staticmethod
    def shell(loader: Any) -> tuple[Any, Any]:
        """Return an iterator that has drawn a pass's seed, and a generator that will draw that seed again."""
        import torch
        from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

        seeds = torch.Generator()
        seeds.set_state((loader.generator if loader.generator is not None else torch.default_generator).get_state())
        alone = copy.copy(loader)
        vars(alone).update(num_workers=0, prefetch_factor=None, timeout=0, pin_memory=False, _iterator=None)
        vars(alone).update(_dataset_kind=_DatasetKind.Map)  # a stream is begun in its workers, and not here
        shell = _SingleProcessDataLoaderIter(alone)
        shell._dataset_kind = loader._dataset_kind
        return shell, seeds

    def __init__(self, loader: Any, origin: WorkerOrigin, shell: Any, seeds: Any) -> None:
        """Start workers as `loader` would, from the seed that `seeds` draws; `origin`: what they are copies of."""
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        begin = Begin(loader.worker_init_fn, loader.collate_fn)
        self._loader = copy.copy(loader)
        self._feed = _Feed(loader)
        vars(self._loader).update(
            {
                "generator": seeds,
                "persistent_workers": True,
                "worker_init_fn": begin,
                "collate_fn": NotingCollate(loader.collate_fn, begin),
                "_iterator": None,
                "sampler" if loader.batch_sampler is None else "batch_sampler": self._feed,
            }
        )
        self._origin = origin
        self._iterator = _MultiProcessingDataLoaderIter(self._loader)
        self._hand_to(shell)

    @property
    def busy(self) -> bool:
        """Return whether a pass that has not ended is still held by the script."""
        turn = self._turn()
        return turn is not None and not turn.finished

    def stands(self, loader: Any) -> bool:
        """Return whether new workers would be copies of what these are copies of."""
        turn = self._turn()
        return not (turn is not None and turn.lost) and self._origin.begins(loader)

    def begin_again(self, shell: Any) -> bool:
        """Begin the pass of `shell` with the same workers; return False when new ones are needed."""
        try:
            if _is_stream(self._loader):
                stay = self._begin_streams(shell._base_seed)
            elif stay := self._reseed(shell._base_seed):
                self._iterator._reset(self._loader)
            if not stay:
                self.end()
                return False
            self._iterator._base_seed = shell._base_seed
        except Exception:
            self.end()
            return False
        self._hand_to(shell)
        return True

    def _hand_to(self, shell: Any) -> None:
        turn = _Turn(self._iterator)
        shell._next_data = turn.next_data
        shell._batches = turn
        self._turn = weakref.ref(turn)

    def _reseed(self, base_seed: int) -> bool:
        """Have every worker begin anew; return whether all of them are as new ones would be."""
        from torch.utils.data._utils.worker import _ResumeIteration

        seed: Any = Reseed(base_seed)
        for queue in self._iterator._index_queues:
            queue.put(_ResumeIteration(seed))
        answers: list[object] = []
        while len(answers) < self._iterator._num_workers:
            answer, _ = self._iterator._get_data()
            if isinstance(answer, _ResumeIteration):  # else a batch of a pass that was broken off
                answers.append(answer.seed)
        return not any(answers)

    def _begin_streams(self, base_seed: int) -> bool:
        """Have every worker begin its part anew, once, from the seed of the pass; return whether all of them can.

        Torch's own message, by which they do so, takes the seed along; what they answer is in what comes back.
        """
        from torch.utils.data._utils.worker import _ResumeIteration

        iterator, answers = cast("Any", self._iterator), list[object]()
        receive = iterator._get_data

        def noted() -> Any:
            received = receive()
            if isinstance(received[0], _ResumeIteration):
                answers.append(received[0].seed)
            return received

        iterator._shared_seed, iterator._get_data = Reseed(base_seed), noted
        try:
            iterator._reset(self._loader)
        finally:
            iterator._shared_seed = None
            del iterator._get_data
        return len(answers) == iterator._num_workers and not any(answers)

    def end(self) -> None:
        """End the workers."""
        with contextlib.suppress(Exception):  # torch reports a worker that died from here
            self._iterator._shutdown_workers()


class _Turn:
    """One pass: where a shell gets its batches from."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._peeking = Peeking(iterator)
        self.finished = False
        self.lost = False

    def peek(self) -> Any:
        return None if self.finished else self._peeking.peek()

    def next_data(self) -> Any:
        if self.finished:
            raise StopIteration
        try:
            return self._peeking.next_data()
        except StopIteration:
            self.finished = True
            raise
        except RuntimeError:
            self.lost = True
            raise


def _is_stream(loader: Any) -> bool:
    """Tell whether workers read a stream, each a part of it: which of its samples came first is the stream's own."""
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


class _Feed:
    """The loader's sampler, walked once for each pass; torch asks for it once more as it starts the workers."""

    def __init__(self, loader: Any) -> None:
        self._sampler = loader._index_sampler
        self._started = False

    def __iter__(self) -> Iterator[Any]:
        if not self._started:
            self._started = True
            return iter(())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)
