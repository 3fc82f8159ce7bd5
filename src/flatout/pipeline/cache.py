"""What is kept of one loader's batches, and from when on it serves them.

The first pass is the script's own: its iterator, its workers. What it delivers is kept, row by row, so filling costs a
copy and needs no knowledge of the data set. From the pass on in which everything is there, batches are gathered. What
is kept is held against the data set, sample by sample, at the start of each pass and now and then in it; where they
differ, the script's own loader goes on by itself.
"""

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.dataset_state import fingerprint, random_states, same, undrawn
from flatout.pipeline.examination import ask, examine, some_indices
from flatout.pipeline.layout import layout_of
from flatout.pipeline.memory import Budget
from flatout.pipeline.passes import Deliver, KeptPass, fill, noted
from flatout.pipeline.store import Store
from flatout.units import format_bytes

__all__ = ["Cache", "refusal"]

_MOST_MISSING = 0.1  # of the samples: where fewer are missing, they are made in the training process
_PROOFS = 2  # samples that are asked for again at the start of a pass
_PROOF_SHARE = 0.003  # of the time, for proofs within a pass
_CHANGES = 2  # changes of the data set between passes after which nothing more is kept
_REHEARSED = 256  # samples that a trial's memory is filled with
_ROWWISE = 3  # batches that a collate function is tried on

Iterate = Callable[[Any], Any]


def refusal(loader: Any) -> str:
    """Return why nothing of `loader` can be kept by what it is, an empty string when nothing speaks against it."""
    from torch.utils.data import IterableDataset, MapDataPipe
    from torch.utils.data.dataloader import DataLoader

    name = type(loader.dataset).__name__
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} walks in a way of its own"
    if isinstance(loader.dataset, IterableDataset | MapDataPipe):
        return f"{name} has no samples that are asked for by index"
    if loader.batch_sampler is None:
        return "batch_size is None: there are no batches"
    if loader.num_workers and not getattr(loader, "in_order", True):
        return "its workers deliver out of order"
    try:
        return "" if len(loader.dataset) > 0 else f"{name} is empty"
    except (TypeError, NotImplementedError):
        return f"{name} has no length"


class Cache:
    """The rows of one data set under one collate function; `reason` says why there is none."""

    def __init__(
        self, loader: Any, budget: Budget, purpose: str = "run", hit: Callable[[], None] = lambda: None
    ) -> None:
        """Look at the data set of `loader`; nothing is kept yet. `purpose` and `hit` as in `Kept`."""
        self._purpose, self._hit = purpose, hit
        self.collate = loader.collate_fn
        self.served = 0  # batches gathered
        self._budget = budget
        self._store: Store | None = None
        self._twins: Any = weakref.WeakKeyDictionary()  # loader -> the one that is walked in its place, with workers
        self._seeded: Any = weakref.WeakSet()  # loaders whose workers stay and have drawn their seed
        self._changes = 0
        self._next_proof = 0.0
        self.reason = refusal(loader) or examine(loader.dataset)
        self._mark = fingerprint(loader.dataset)
        self._ref: Callable[[], Any] = _weakly(loader)

    @property
    def dataset(self) -> Any:
        """Return the data set; a pass holds it."""
        return self._ref()

    @property
    def num_kept(self) -> int:
        """Return the number of samples that are kept."""
        return 0 if self._store is None else self._store.num_filled

    @property
    def num_bytes(self) -> int:
        """Return the bytes set aside for them."""
        return 0 if self._store is None else self._store.num_samples * self._store.layout.num_bytes

    def walk(self, loader: Any, iterate: Iterate) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself."""
        if not self.reason:
            self._look_again()
        if self.reason:  # workers that stay go on: others would have other seeds
            staying = loader.persistent_workers and loader in self._twins
            return self._filling(loader, iterate) if staying else iterate(loader)
        if self._purpose != "run" or self._nearly_full():
            seeded = loader.persistent_workers and (loader in self._seeded or loader._iterator is not None)
            self._seeded.add(loader)
            return KeptPass(loader, self._make, seeded_before=seeded)
        return self._filling(loader, iterate)

    def _nearly_full(self) -> bool:
        store = self._store
        return store is not None and store.num_filled >= (1 - _MOST_MISSING) * store.num_samples

    # -- filling ------------------------------------------------------------------------------------------------

    def _filling(self, loader: Any, iterate: Iterate) -> Any:
        deliver = _weakly_called(weakref.WeakMethod(self._delivered))  # an iterator must not keep its workers alive
        if not loader.num_workers:
            return fill(iterate(loader), None, deliver)
        self._seeded.add(loader)
        if loader not in self._twins or not loader.persistent_workers:
            self._twins[loader] = noted(loader)
        return fill(iterate(self._twins[loader]), self._twins[loader], deliver)

    def _delivered(self, indices: torch.Tensor, batch: Any, drew: bool) -> None:
        if self.reason:
            return
        if drew:
            return self._refuse("random numbers are drawn while a batch is made")
        found = layout_of(batch, len(indices))
        if found is None:
            return self._refuse("its batches hold something that is not one row a sample")
        layout, parts = found
        if self._store is None and not self._begin(layout, indices, batch):
            return None
        store = self._store
        assert store is not None
        if (layout.skeleton, layout.rows) != (store.layout.skeleton, store.layout.rows):
            return self._refuse("its batches are not all of one shape")
        if len(store.missing(indices)):
            store.fill(indices, parts)
        return None

    def _begin(self, layout: Any, indices: torch.Tensor, batch: Any) -> bool:
        number = len(self.dataset)
        wanted = number * layout.num_bytes
        if wanted > self._budget.left:
            self._refuse(
                f"{number} samples of {format_bytes(layout.num_bytes)} take {format_bytes(wanted)}, "
                f"and {format_bytes(max(0, self._budget.left))} may be taken"
            )
            return False
        reason = self._collates_by_row(indices, batch)
        if reason:
            self._refuse(reason)
            return False
        self._store = Store(layout, number)
        return self._budget.take(wanted, self._store)

    def _collates_by_row(self, indices: torch.Tensor, batch: Any) -> str:
        """Return why a row may depend on the others of its batch, an empty string when it does not."""
        default = torch.utils.data.dataloader.default_collate
        whole = indices.tolist()
        tried = [whole[:1], whole[-1:] + whole[:1], whole[::-1]] if self.collate is not default else [whole[:1]]
        _, parts = layout_of(batch, len(whole)) or (None, [])
        for some in tried[: 1 if len(whole) == 1 else _ROWWISE]:
            try:
                before = random_states()
                made = self.collate(ask(self.dataset, some))
                drew = not undrawn(before, random_states())
            except Exception as error:  # a stranger's function on a batch of a size it may never have seen
                return f"its collate function raised {type(error).__name__} on {len(some)} samples"
            found = layout_of(made, len(some))
            places = [whole.index(index) for index in some]
            if drew or found is None or not _rows_equal(found[1], parts, places):
                return "a row of its batches depends on the other samples, or changes from call to call"
        return ""

    # -- serving ------------------------------------------------------------------------------------------------

    def _make(self, indices: torch.Tensor) -> Any:
        if not self.reason and not self._completed(indices):
            self._refuse("a sample could not be made by itself")
        if self.reason or self._store is None:
            return self._made_plainly(indices)
        batch = self._store.take(indices)
        self.served += 1
        self._hit()
        return self._proven(indices, batch) if time.monotonic() > self._next_proof else batch

    def _completed(self, indices: torch.Tensor) -> bool:
        """Return whether all of `indices` are kept, after making what was missing."""
        if self._store is None:
            self._rehearse(indices)
            return self._store is not None or bool(self.reason)
        missing = self._store.missing(indices)
        if len(missing):
            wanted = missing.tolist()
            samples = ask(self.dataset, wanted) if self._purpose != "run" else self._samples(wanted)
            before = random_states()
            batch = self.collate(samples)
            self._delivered(missing, batch, not undrawn(before, random_states()))
        return self._store is not None and not len(self._store.missing(indices))

    def _rehearse(self, indices: torch.Tensor) -> None:
        """In a trial, keep something to serve from; a training has filled its memory by now."""
        some = torch.tensor(some_indices(len(self.dataset), _REHEARSED)) if self._purpose == "timing" else indices
        self._delivered(some, self.collate(ask(self.dataset, some.tolist())), drew=False)
        if self._store is not None and self._purpose == "timing":
            self._store.repeat(some)

    def _samples(self, indices: list[int]) -> list[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        return list(many(indices)) if callable(many) else [self.dataset[index] for index in indices]

    def _made_plainly(self, indices: torch.Tensor) -> Any:
        return self.collate(self._samples(indices.tolist()))

    def _proven(self, indices: torch.Tensor, batch: Any) -> Any:
        """Return `batch`, one of whose samples was asked for again; the plain one where they differ."""
        start = time.monotonic()
        place = int(start * 1e3) % len(indices)
        good = self._agrees([int(indices[place])])
        end = time.monotonic()
        self._next_proof = end + (end - start) / _PROOF_SHARE
        return batch if good else self._made_plainly(indices)

    def _look_again(self) -> None:
        """Begin a pass: hold what is kept against the data set."""
        if self._store is None:
            return
        mark = fingerprint(self.dataset)
        if mark != self._mark:
            self._mark, self._store = mark, None
            self._changes += 1
            if self._changes > _CHANGES:
                self._refuse(f"{type(self.dataset).__name__} changes from pass to pass")
            return
        filled = self._store.some_filled(_PROOFS)
        if filled and not self._agrees(filled):
            return

    def _agrees(self, indices: list[int]) -> bool:
        store = self._store
        assert store is not None
        try:
            plain = self.collate(ask(self.dataset, indices))
        except Exception as error:
            self._refuse(f"{type(self.dataset).__name__} raised {type(error).__name__} when it was asked again")
            return False
        if same(plain, store.take(torch.tensor(indices))) or self._purpose == "timing":
            return True
        self._refuse(f"sample {indices[0]} is another than it was")
        return False

    def _refuse(self, reason: str) -> None:
        self.reason, self._store = self.reason or reason, None


def _weakly_called(method: weakref.WeakMethod[Deliver]) -> Deliver:
    def call(indices: torch.Tensor, batch: Any, drew: bool) -> None:
        alive = method()
        if alive is not None:
            alive(indices, batch, drew)

    return call


def _weakly(loader: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(loader.dataset)
    except TypeError:  # a list
        held: Callable[[], Any] = weakref.ref(loader)
        return lambda: held().dataset


def _rows_equal(made: list[Any], whole: list[Any], places: list[int]) -> bool:
    if len(made) != len(whole):
        return False
    for one, part in zip(made, whole, strict=True):
        wanted = [part[place] for place in places] if isinstance(part, list) else part[places].contiguous()
        if not same(one.contiguous() if isinstance(one, torch.Tensor) else one, wanted):
            return False
    return True
