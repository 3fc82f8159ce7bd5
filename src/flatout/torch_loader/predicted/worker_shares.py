"""How many batches of which loaders came from workers, of loaders that are gone, too."""

from dataclasses import dataclass
from typing import Any

from flatout.loader_account import LoaderAccount

__all__ = ["WorkerShare", "WorkerShares"]

_MOST = 50  # loaders


@dataclass
class WorkerShare:
    """What became of one loader's batches.

    Attributes:
        dataset: the name of the data set's class.
        place: the line that walked the loader first.
        passes: how often it was walked.
        asked: batches that were asked for.
        taken: those of them that came from workers.
        reason: why none come from there any more.
    """

    dataset: str
    place: str
    passes: int = 0
    asked: int = 0
    taken: int = 0
    reason: str = ""


class WorkerShares:
    """The shares of a process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._found: list[WorkerShare] = []

    def begin(self, loader: Any, place: str) -> WorkerShare:
        """Return what counts the batches of a loader that is walked at `place`."""
        share = WorkerShare(type(loader.dataset).__name__, place)
        if len(self._found) < _MOST:
            self._found.append(share)
        return share

    def all(self) -> list[LoaderAccount]:
        """Return one account for each data set and line, in the order in which they were walked first."""
        accounts: dict[tuple[str, str], LoaderAccount] = {}
        for each in self._found:
            key = each.dataset, each.place
            new = LoaderAccount(*key, passes=each.passes, made=each.taken, asked=each.asked, reason=each.reason)
            accounts[key] = accounts[key].with_more(new) if key in accounts else new
        return list(accounts.values())
