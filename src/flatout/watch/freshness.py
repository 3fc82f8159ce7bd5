"""Whether what is kept of a data set may still be served: whether all that it was made from is as it was."""

import warnings
from collections.abc import Callable, Sequence, Set
from typing import Any

from flatout.errors import ChangedTooLate
from flatout.watch.ambient import Ambient
from flatout.watch.files.file_questions import Asked
from flatout.watch.memory.object_kinds import POINTERS
from flatout.watch.state_watch import Following, StateWatch

__all__ = ["ON_CHANGE", "Freshness"]

ON_CHANGE = ("stop", "warn")
"""What may be done where a change is seen too late: the training stops, or goes on with a warning."""


class Freshness:
    """Says before each batch whether what is kept stands.

    Attributes:
        changed: what has changed, in words; an empty string while all is as it was.
        sees_all: nothing of the data set can change without being seen before the next batch.
    """

    def __init__(
        self,
        loader: Any,
        left_out: Callable[[], list[Any]] | None = None,
        *,
        on_change: str = "stop",
        asked: Asked = frozenset(),
        live: frozenset[int] = frozenset(),
        also: Sequence[tuple[str, Any]] = (),
        files: Following = "listed",
        way: str = "served from memory",
    ) -> None:
        """Take the data set and the collate function of `loader` as they are now.

        `left_out()`: transforms that are called as the script calls them, as the collate function then is: they may do
        as they like.
        `asked`, `live`, `files`: as in `StateWatch`. `also`: further things, each with what it is called. `way`: what
        becomes of batches, in words.
        """
        self._on_change, self._way = on_change, way
        self._name = type(loader.dataset).__name__
        roots = [(self._name, loader.dataset)]
        if left_out is None:
            roots.append(("collate_fn", loader.collate_fn))
        self._watch = StateWatch([*roots, *also], left_out or list, asked=asked, live=live, files=files)
        self.graph = self._watch.graph
        self.changed = self._file_changed = ""
        self._served = self._earlier = 0  # batches in this pass, and in those before
        self._ambient = Ambient(self._watch.reads_files or files != "listed")
        self.sees_all = not (self._watch.unseen or self.graph.opaque - POINTERS)

    def holds(self, batches: int = 1) -> bool:
        """Return whether everything is as it was, as far as is seen at once; for every batch."""
        if not self.changed:
            self.changed = self._watch.look()
            self._served += batches
        return not self.changed and self._ambient.as_before()

    def holds_here(self) -> bool:
        """Return whether the data set is what workers would have a copy of; where not, nobody has that any more.

        Raises:
            ChangedTooLate: it is not, and the training is to stop.
        """
        if not self.holds() and self.changed:
            self.too_late(self.changed)
        return not self.changed

    def changed_by_reading(self) -> str:
        """Return why nothing is kept where everything held before samples were read, and no more; "" if it does."""
        self.holds(0)
        return "" if not self.changed else f"{self._name} changes while it is read: {self.changed}"

    def left_behind(self, covered: Set[int] = frozenset()) -> str:
        """Return what has changed, by reading everything, besides objects at `covered`; an empty string for nothing."""
        return self._watch.left_behind(set(covered))

    def files_hold(self) -> bool:
        """Return whether no file that samples are read from has changed: workers read them when they make a sample."""
        self._file_changed = self._file_changed or self._watch.hears()
        return not self._file_changed

    def begin_pass(self, live: bool) -> bool:
        """Return whether everything is as it was, and begin to count batches; `live`: samples are read here."""
        if not self.changed:
            self.changed = self._file_changed or self._watch.look_deep()
        if not live and not self.changed and not self._ambient.as_before():
            self.changed = "a setting of the process"
        self._earlier, self._served = self._earlier + self._served, 0
        return not self.changed

    def end_pass(self) -> None:
        """Look at what is seen at the ends of passes alone.

        Raises:
            ChangedTooLate: it has changed, and batches were served meanwhile.
        """
        if self.changed or not self._watch.unseen:
            return
        self.changed = self._watch.look_deep()
        if self.changed:
            self.too_late(self.changed)

    def too_late(self, what: str, *, in_this_pass: bool = True) -> None:
        """Say that batches were served that may be others than the data set would have given.

        `in_this_pass`: everything was as it was when the pass began.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.changed = self.changed or what
        number = self._served + (0 if in_this_pass else self._earlier)
        error = ChangedTooLate(
            f"{what} changed while up to {number} batches of {self._name} were {self._way}.",
            "They may hold other values than the plain DataLoader would have given.",
            'Change it between two passes, leave this loader out, or continue with on_change="warn".',
        )
        if self._on_change == "stop":
            raise error
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
