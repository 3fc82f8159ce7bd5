"""How many random words of each stream the step between two batches takes, as far as was seen."""

from flatout.torch_loader.predicted.random_streams import WordCounts

__all__ = ["StepWords"]


class StepWords:
    """What the states at the next batches are expected by."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: tuple[int | None, ...] = ()
        self._last: tuple[int | None, ...] = ()

    def note(self, words: tuple[int | None, ...]) -> None:
        """Note the words of a step; what differs once is an exception, twice alike it is the rule."""
        if len(words) != len(self._known):
            self._known = words
        else:
            ways = zip(words, self._last, self._known, strict=True)
            self._known = tuple([now if now == last or known is None else known for now, last, known in ways])
        self._last = words

    def expected(self, num_streams: int) -> WordCounts:
        """Return the words of the next step, 0 of a stream of which nobody can tell."""
        known = self._known if len(self._known) == num_streams else (0,) * num_streams
        return tuple([words or 0 for words in known])
