"""The shares that this rank keeps, by the parameters that they are of."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.shard import Place, Shard

__all__ = ["LiveShards"]


class LiveShards:
    """Shares of parameters, for as long as these live."""

    def __init__(self, place: Place, forgotten: Callable[[Shard], None]) -> None:
        """Know of none; `forgotten` is called with each whose parameter has gone."""
        self.made = 0  # all in all
        self._place, self._forgotten = place, forgotten
        self._live: dict[int, Shard] = {}

    def of(self, parameter: Any) -> Shard | None:
        """Return the share of a parameter, if there is one."""
        found = self._live.get(id(parameter))
        return found if found is not None and found.ref() is parameter else None

    def all(self) -> list[Shard]:
        """Return all of them, the oldest first."""
        return list(self._live.values())

    def known(self, parameter: Any) -> Shard:
        """Return the share of a resting parameter.

        Raises:
            RuntimeError: this process or thread cannot put it together.
        """
        found = self.of(parameter)
        if found is None:
            raise RuntimeError("flatout: the values of this parameter lie with all ranks, and nobody knows it any more")
        if get_ident() != HERE.main and not HERE.backward:
            raise RuntimeError(
                "flatout: the values of this parameter lie with all ranks, and a thread or a forked process cannot"
                " read them: read them in the main thread before"
            )
        return found

    def keep(self, parameter: Any, like: Shard | None = None) -> Shard:
        """Keep a share of a parameter that is whole, or of one without values what there is of `like`."""
        key = id(parameter)

        def forget(reference: Any) -> None:
            found = self._live.get(key)
            if found is not None and found.ref is reference:
                del self._live[key]
                found.block = ()  # it has held itself
                self._forgotten(found)

        shard = Shard(parameter, self._place, forget, like)
        self._live[key] = shard
        self.made += 1
        shard.show(False)
        return shard
