"""What the workers of loaders are copies of, and whether the script's own is still like that.

Workers that take the place of what the script has give what the script would have got only while the data set, the
functions and what both read are what they were when the workers were copied from the process.
"""

import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any

from flatout.watch.batch_side_effects import BatchSideEffects, make_some, unfollowed
from flatout.watch.freshness import Freshness
from flatout.watch.memory.object_graph import available

__all__ = ["WorkerOrigin", "WorkerOrigins"]

_CHANGES = 2  # within passes; after more of them no workers are started
_LOOK_SHARE = 0.1  # of a pass: looking anew at each pass is to cost no more


class WorkerOrigin(Freshness):
    """What workers of one loader are copies of.

    Attributes:
        sets_up: the data set sets itself up at its first batch.
    """

    sets_up = False

    def __init__(
        self,
        loader: Any,
        on_change: str = "stop",
        *,
        left_out: Sequence[Any] = (),
        instead: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """Take everything as it is now; what stands `instead` of things `left_out` is watched in their place."""
        init = loader.worker_init_fn
        also = [*instead, *([("worker_init_fn", init)] if init is not None else [])]
        if left_out:
            also.append(("collate_fn", loader.collate_fn))
        out = (lambda: [*left_out]) if left_out else None
        super().__init__(loader, out, on_change=on_change, also=also, files="heard", way="made by workers")
        self._inherited = _inherited(loader)

    @classmethod
    def of(cls, loader: Any, on_change: str = "stop") -> "WorkerOrigin | None":
        """Return what new workers of `loader` are copies of now; None where that may change unseen."""
        if not available():
            return None
        origin = cls(loader, on_change)
        return None if unfollowed(origin) else origin

    def begins(self, loader: Any) -> bool:
        """Return whether workers that are started now for a pass over `loader` would be the same."""
        return self.asks_as_before(loader) and self.begin_pass(live=False)

    def asks_as_before(self, loader: Any) -> bool:
        """Return whether the loader has the functions and settings that it had."""
        now = _inherited(loader)
        return all(
            one is other or (isinstance(one, int) and one == other)
            for one, other in zip(now, self._inherited, strict=True)
        )


def _inherited(loader: Any) -> tuple[Any, ...]:
    """Return what may be set on a loader and acts in its workers, and the modes that they begin with."""
    torch = sys.modules["torch"]
    own = vars(loader)
    names = ("collate_fn", "worker_init_fn", "num_workers", "prefetch_factor", "pin_memory", "timeout", "generator")
    feeds = (own.get("sampler"), own.get("batch_sampler"))
    return (*map(own.get, names), *feeds, torch.is_grad_enabled(), torch.is_inference_mode_enabled())


class WorkerOrigins:
    """For each loader what its workers are copies of, or why it has none."""

    def __init__(self, on_change: str = "stop") -> None:
        """Know none; `on_change`: as in `Freshness`."""
        self._on_change = on_change
        self._known: weakref.WeakKeyDictionary[Any, WorkerOrigin] = weakref.WeakKeyDictionary()
        self._changes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._sets_up: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # found by making some
        self.reasons: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def begin_pass(self, loader: Any, *, pass_s: float = 0.0, may_set_up: bool = False) -> WorkerOrigin | None:
        """Return what workers that are started now are copies of, None where none may be started.

        It is the same object as before where nothing has changed. `pass_s`: what a pass takes, 0 where nobody knows;
        `may_set_up`: as in `make_some`.
        """
        if loader in self.reasons:
            return None
        known = self._known.get(loader)
        if known is not None and known.begins(loader):
            return known
        began = time.monotonic()
        asked = loader in self._sets_up and (known is None or known.asks_as_before(loader))
        fresh = WorkerOrigin.of(loader, self._on_change)
        made = BatchSideEffects("may change unseen")
        if fresh is not None:
            made = (
                BatchSideEffects(sets_up=self._sets_up[loader])
                if asked
                else make_some(loader, fresh, may_set_up=may_set_up)
            )
        if made.against or fresh is None:
            self.refuse(loader, made.against)
            return None
        if known is not None and pass_s and time.monotonic() - began > _LOOK_SHARE * pass_s:
            self.changed(loader)
        self._sets_up[loader] = fresh.sets_up = made.sets_up
        self._known[loader] = fresh
        return fresh

    def changed(self, loader: Any) -> None:
        """Note that the data set changed within a pass, or at a cost; that may not go on for ever."""
        self._known.pop(loader, None)
        self._changes[loader] = self._changes.get(loader, 0) + 1
        if self._changes[loader] > _CHANGES:
            self.refuse(loader, "changes again and again")

    def refuse(self, loader: Any, reason: str) -> None:
        """Start no workers for `loader` any more."""
        self._known.pop(loader, None)
        self.reasons.setdefault(loader, f"{type(loader.dataset).__name__} {reason}")
