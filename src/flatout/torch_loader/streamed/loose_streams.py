"""Which random streams a stream of samples draws from, and so has to find where the script's process has them."""

from collections.abc import Sequence

from flatout.torch_loader.predicted.random_streams import StreamState

__all__ = ["LooseStreams", "undrawn"]

States = Sequence[StreamState]


class LooseStreams:
    """The streams that no batch draws from: wherever they stand, batches are the same, as comparisons have shown."""

    def __init__(self) -> None:
        """Know of none."""
        self._numbers: set[int] | None = None

    def note(self, loose: Sequence[bool]) -> None:
        """Note from which streams a batch did not draw that came out the same with them elsewhere."""
        found = {number for number, each in enumerate(loose) if each}
        self._numbers = found if self._numbers is None else self._numbers & found

    def differ(self, start: States, now: States, end: States | None = None) -> bool:
        """Return whether a batch that was read from `start` may be another one than from `now`.

        `end`: where it left the streams; None where that is not known yet.
        """
        for number, (one, other) in enumerate(zip(start, now, strict=True)):
            if one.mark == other.mark:
                continue
            if number not in (self._numbers or ()) or (end is not None and end[number].mark != one.mark):
                return True
        return False


def undrawn(start: States, end: States) -> list[bool]:
    """Return of each stream whether it stands where it stood."""
    return [one.mark == other.mark for one, other in zip(start, end, strict=True)]
