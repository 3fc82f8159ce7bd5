"""What became of each loader: how many of its batches came from memory, and why the others did not."""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flatout.pipeline.serve.loader_server import LoaderServer

__all__ = ["LoaderAccount", "LoaderAccounts"]

_MOST = 50
"""Loaders of which accounts are kept."""

_LATE = 3
"""A pass in which what was kept in an earlier one should be served."""

_FLEETING = "its data set is made anew for each pass, so nothing kept of it would serve"
_FILLING = "kept in the first pass, served from the second on"
_NEVER_WHOLE = "no pass has delivered all of its samples yet"


@dataclass(frozen=True)
class LoaderAccount:
    """What became of the loaders over one data set that one line of the script walks.

    Attributes:
        dataset: the name of the data set's class.
        place: the line that walked it first, as "file:line"; empty where that is not known.
        passes: how often it was walked.
        batches: that came from memory.
        samples: that came from memory one by one, and were collated by the script's own function.
        reason: why its own iterator makes batches now; empty where it does not.
        datasets: how many data sets of that class there were, one after the other.
    """

    dataset: str
    place: str = ""
    passes: int = 0
    batches: int = 0
    samples: int = 0
    reason: str = ""
    datasets: int = 1

    def with_more(self, other: "LoaderAccount") -> "LoaderAccount":
        """Return both in one; what is said is what `other` says."""
        return replace(
            other,
            passes=self.passes + other.passes,
            batches=self.batches + other.batches,
            samples=self.samples + other.samples,
            datasets=self.datasets + other.datasets,
        )

    def beside(self, other: "LoaderAccount") -> "LoaderAccount":
        """Return both in one, of two processes that walk the same line side by side, as ranks do."""
        both = self.with_more(other)
        return replace(
            both,
            passes=max(self.passes, other.passes),
            datasets=max(self.datasets, other.datasets),
            reason=other.reason or self.reason,
        )

    def __str__(self) -> str:
        """Return what became of it in one line."""
        where = f"{self.dataset} at {self.place}" if self.place else self.dataset
        passes = f"{self.passes:,} pass{'es' if self.passes != 1 else ''}"
        told = f"{self.batches:,} batches from memory"
        if self.samples and not self.batches:
            told = f"{self.samples:,} samples from memory"
        why = self.reason
        if not (why or self.batches or self.samples):
            why = _FILLING if self.passes == 1 else _FLEETING if self.datasets > 1 else _NEVER_WHOLE
        return f"{where}, {passes}: {told}{f': {why}' if why else ''}"


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

    def pass_by(self, dataset: str, place: str) -> None:
        """Note a pass over a data set that is left alone, since others of its type were gone after one."""
        self._add(self._past, LoaderAccount(dataset, place, passes=1, reason=_FLEETING))

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
    return LoaderAccount(server.name, place, server.num_passes, server.served, samples, strategy.reason)
