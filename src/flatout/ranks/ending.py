"""How one rank ends: with the script, stopped with a line, or because another rank has gone."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from flatout.ranks.account import RankAccount

__all__ = ["RankEnd"]

_STOPPED = 1  # exit code
_HEARD_S = 1.0  # for what another rank says before it ends
_KILLED_S = 60.0  # the launcher ends what is left long before


class RankEnd:
    """Ends this rank, and tells the others of it."""

    def __init__(self, account: RankAccount, store: Any, rank: int, size: int) -> None:
        """Take where the end is told."""
        self._account = account
        self._store = store
        self._rank, self._size = rank, size
        self._pid = os.getpid()

    def ended(self) -> None:
        """The script has ended by itself: tell ranks that still wait for this one."""
        if os.getpid() != self._pid:  # a child of this rank
            return
        failed = getattr(sys, "last_value", None) is not None  # an exception that nobody has caught
        if failed:
            self._account.facts["failed"] = True
        self._account.write()
        self._tell("failed" if failed else "ended", "1")

    def stop(self, reason: str) -> NoReturn:
        """End the training, since its results would not be those of one process."""
        self._account.facts["stopped"] = reason
        self._tell("stopped", reason)
        self._end()

    def parted(self, places: Sequence[str]) -> NoReturn:
        """End the training of ranks that do not do the same."""
        self.stop(f"ranks went different ways: {_told(places)}")

    def lost(self, error: Exception) -> NoReturn:
        """Another rank has gone: it has failed, which the launcher sees, or its script has ended before ours."""
        self._account.facts["lost"] = f"{type(error).__name__}: {error}"[:300]
        until = time.monotonic() + _HEARD_S
        while time.monotonic() < until:
            gone = [rank for rank in range(self._size) if rank != self._rank and self._heard("ended", rank)]
            if gone:
                self.stop(f"ranks went different ways: the script has ended in rank {gone[0]}, and goes on here")
            if any(self._heard("stopped", rank) for rank in range(self._size) if rank != self._rank):
                self._end()
            if any(self._heard("failed", rank) for rank in range(self._size) if rank != self._rank):
                break
            time.sleep(0.05)
        self._account.write()
        time.sleep(_KILLED_S)
        raise error

    def leave(self) -> NoReturn:
        """End, since the training cannot go on."""
        self._end()

    def _end(self) -> NoReturn:
        self._account.write()
        streams: tuple[Any, ...] = (sys.stdout, sys.stderr, sys.__stdout__)  # stdout is another one in a trial
        for stream in streams:
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_STOPPED)

    def _tell(self, what: str, text: str) -> None:
        with contextlib.suppress(Exception):  # the store goes with the launcher
            self._store.set(f"{what}/{self._rank}", text)

    def _heard(self, what: str, rank: int) -> bool:
        try:
            return bool(self._store.check([f"{what}/{rank}"]))
        except Exception:
            return False


def _told(places: Sequence[str]) -> str:
    """Return what the ranks are at, those that are at the same together."""
    if len(set(places)) == 1:
        return (
            f"{places[0]}, is made with other data or in another state of random streams: is there one without a seed?"
        )
    ranks: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place or "no call", []).append(rank)
    return "; ".join(f"rank {', '.join(map(str, each))} is at {place}" for place, each in ranks.items())
