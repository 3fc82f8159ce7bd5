"""The accounts of all loaders of a process: how many of their batches came from memory, and why the others did not."""

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flatout.loader_account import FLEETING, LoaderAccount

if TYPE_CHECKING:
    from flatout.pipeline.serve.loader_server import LoaderServer

__all__ = ["LoaderAccounts"]

_MOST = 50
"""Loaders of which accounts are kept."""

_LATE = 3
"""A pass in which what was kept in an earlier one should be served."""


class LoaderAccounts:
    """The accounts of a process, of loaders that are gone, too."""

    def __init__(self) -> None:
        """Begin with none."""
        self._live: list[tuple[weakref.ref[LoaderServer], str]] = []
        self._past: dict[tuple[str, str], LoaderAccount] = {}

    def begin(self, server: "LoaderServer", place: str) -> None:
        """Follow what `server` does for a loader that is walked at `place`."""
        if len(self._live) < _MOST:
            self._live.append((weakref.ref(server), place))

    def end(self, servers: "Iterable[LoaderServer]") -> None:
        """Take the account of servers that go."""
        going = set(map(id, servers))
        for server, place in self._live:
            alive = server()
            if alive is not None and id(alive) in going:
                self._add(self._past, _account_of(alive, place))
        self._live = [each for each in self._live if (alive := each[0]()) is not None and id(alive) not in going]

    def pass_by(self, dataset: str, place: str, reason: str = FLEETING) -> None:
        """Note a pass over a data set that is left alone for `reason`: others of its type were gone after one."""
        self._add(self._past, LoaderAccount(dataset, place, passes=1, reason=reason))

    def nothing_served(self) -> list[LoaderAccount]:
        """Return all accounts where no batch came from memory, by now in the third pass of one; else none."""
        found = self.all()
        late = any(each.passes >= _LATE and each.reason for each in found)
        return found if late and not any(each.batches or each.samples for each in found) else []

    def all(self) -> list[LoaderAccount]:
        """Return one account for each data set and line, in the order in which they were walked first."""
        found = dict(self._past)
        for server, place in self._live:
            alive = server()
            if alive is not None and alive.num_passes:
                self._add(found, _account_of(alive, place))
        return list(found.values())

    @staticmethod
    def _add(accounts: dict[tuple[str, str], LoaderAccount], new: LoaderAccount) -> None:
        key = new.dataset, new.place
        if key in accounts or len(accounts) < _MOST:
            accounts[key] = accounts[key].with_more(new) if key in accounts else new


def _account_of(server: "LoaderServer", place: str) -> LoaderAccount:
    strategy = server.strategy
    samples = 0 if strategy.samples is None else strategy.samples.num_served
    return LoaderAccount(
        dataset=server.name,
        place=place,
        passes=server.num_passes,
        batches=server.served,
        samples=samples,
        reason=strategy.reason,
        changes=len(server.changes),
        changed=server.changes[-1] if server.changes else "",
        anew=strategy.kept_rows.direct,
    )
