"""What the workers of loaders are copies of, and whether the script's own is still like that.

Workers that take the place of what the script has give what the script would have got only while the data set, the
functions and what both read are what they were when the workers were copied from the process.
"""

import time
import weakref
from typing import Any

from flatout.pipeline.inspect.freshness import Freshness
from flatout.pipeline.inspect.object_graph import available
from flatout.pipeline.inspect.one_batch import stays_here, unfollowed

__all__ = ["Origins", "origin_of"]

_CHANGES = 2  # within passes; after more of them no workers are started
_LOOK_SHARE = 0.1  # of a pass: looking anew at each pass is to cost no more


def origin_of(loader: Any, on_change: str = "stop") -> Freshness | None:
    """Return what new workers of `loader` are copies of now; None where that may change unseen."""
    if not available():
        return None
    also = [("worker_init_fn", loader.worker_init_fn)] if loader.worker_init_fn is not None else []
    fresh = Freshness(loader, on_change=on_change, also=also, files="heard", way="made by workers")
    return None if unfollowed(fresh) else fresh


class Origins:
    """For each loader what its workers are copies of, or why it has none."""

    def __init__(self, on_change: str = "stop") -> None:
        """Know none; `on_change`: as in `Freshness`."""
        self._on_change = on_change
        self._known: weakref.WeakKeyDictionary[Any, Freshness] = weakref.WeakKeyDictionary()
        self._changes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.reasons: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def begin_pass(self, loader: Any, *, pass_s: float = 0.0, sets_up: int = 0) -> Freshness | None:
        """Return what workers that are started now are copies of, None where none may be started.

        It is the same object as before where nothing has changed. `pass_s`: what a pass takes, 0 where nobody knows;
        `sets_up`: as in `stays_here`.
        """
        if loader in self.reasons:
            return None
        known = self._known.get(loader)
        if known is not None and known.begin_pass(live=False):
            return known
        began = time.monotonic()
        fresh = origin_of(loader, self._on_change)
        against = "may change unseen"
        if fresh is not None:
            against = stays_here(loader, fresh, sets_up) if known is None and loader not in self._changes else ""
        if against or fresh is None:
            self.refuse(loader, against)
            return None
        if known is not None and pass_s and time.monotonic() - began > _LOOK_SHARE * pass_s:
            self.changed(loader)
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
