"""Whether what is kept of a loader's data set is what the data set would give now."""

from collections.abc import Callable
from typing import Any

from flatout.pipeline.inspect.repeated_proof import ProofPace
from flatout.pipeline.serve.served_loader import ServedLoader
from flatout.watch.files.file_questions import Asked
from flatout.watch.freshness import Freshness

__all__ = ["Staleness"]


class Staleness:
    """What is asked before each batch, and at the start and the end of a pass.

    Attributes:
        pace: says when some of what is kept is to be held against the data set.
        fresh: what sees changes; None until something is kept, and in copies of the process.
    """

    def __init__(self, served: ServedLoader, pace: ProofPace, asked: Asked = frozenset()) -> None:
        """Watch nothing yet; `asked`: what samples ask of files."""
        self._served, self.pace, self._asked = served, pace, asked
        self.fresh: Freshness | None = None

    def take(
        self, loader: Any, left_out: Callable[[], list[Any]] | None = None, read_anew: frozenset[int] = frozenset()
    ) -> None:
        """Take the data set and the collate function as they are now; the rest is as in `Freshness`.

        `read_anew`: the addresses of numbers that are gathered from the data set's own arrays for each batch.
        """
        live = read_anew if self._served.live else frozenset[int]()
        on_change = self._served.policy.on_change
        self.fresh = Freshness(loader, left_out, on_change=on_change, asked=self._asked, live=live)

    @property
    def changed(self) -> str:
        """Return what has changed since, an empty string for nothing."""
        return "" if self.fresh is None else self.fresh.changed

    @property
    def sees_all(self) -> bool:
        """Return whether nothing can change without being seen."""
        return self.fresh is not None and self.fresh.sees_all

    @property
    def due(self) -> bool:
        """Return whether it is time to hold something against the data set, which is as it was."""
        return self.pace.due and self.fresh is not None and self.fresh.holds(0)

    def stands(self, *, direct: bool) -> bool:
        """Return whether what is kept is what the data set would give for the next batch.

        Workers have a copy of the data set, of the moment that the pass began: what is kept goes on to stand for that,
        whatever becomes of the script's own, but for the files, which they read as they are. `direct`: nothing is kept.
        """
        if self.fresh is None:
            return True
        if self._served.live:
            return self.fresh.holds()
        return self.fresh.files_hold() and (not direct or self.fresh.holds_here())

    def changed_by_reading(self) -> str:
        """Return why nothing is to be kept since reading samples here changes them; "" where it does not."""
        return self.fresh.changed_by_reading() if self.fresh is not None and self._served.live else ""

    def begin_pass(self) -> str:
        """Return what has changed before a pass, an empty string for nothing."""
        if self.fresh is None or self.fresh.begin_pass(self._served.live):
            return ""
        return self.fresh.changed

    def end_pass(self) -> None:
        """Look at what is seen at the ends of passes alone; as `Freshness.end_pass`."""
        if self.fresh is not None:
            self.fresh.end_pass()
