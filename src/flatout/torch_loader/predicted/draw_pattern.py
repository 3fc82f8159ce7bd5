"""How many random words a batch and the step after it take, as far as was seen, and whether predicting by it pays."""

from collections import deque
from collections.abc import Callable

from flatout.torch_loader.predicted.random_streams import WordCounts

__all__ = ["DrawPattern"]

_RECENT = 16  # batches
_MOST_ODD = 0.25  # of them; where more draw another number of words, one process makes one batch after the other
_MISSES = 3  # in a row
_REST, _LONGEST_REST = 16, 4096  # batches
_LONGEST_WAIT = 1.0  # times what a batch takes here: where workers' are waited for longer, they do not pay


class DrawPattern:
    """What the states of the next batches are predicted by; it knows no stream and no process.

    Attributes:
        batch: words of a batch, None where they are not known.
        step: words of a step.
        size: samples of a batch of which all this is known; of others the words are in proportion.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.batch: WordCounts | None = None
        self.step: WordCounts | None = None
        self.size = 0
        self._residues: tuple[int | None, ...] = ()  # of the batch that was counted
        self._latest: tuple[int | None, ...] = ()
        self._recent: deque[bool] = deque(maxlen=_RECENT)  # whether batches took as many words as the counted one
        self._misses = self._resting = self._hits = 0
        self._rest = _REST
        self._waits: deque[float] = deque(maxlen=_RECENT)  # for batches of workers, as shares of making one here

    # -- what is drawn ----------------------------------------------------------------------------------------------

    def drawn(self, residues: tuple[int | None, ...], size: int, count: Callable[[], WordCounts | None]) -> bool:
        """Note that a batch was drawn; return whether it took as many words as expected.

        `residues`: are equal where word counts are. `count()` counts the words, which takes time.
        """
        if self.size and size != self.size:
            return True  # a smaller one at the end
        self.size = size
        known, again = None not in residues, residues == self._latest
        expected, self._latest = known and residues == self._residues, residues
        if self._residues:
            self._recent.append(expected)
        if known and not expected and (again or not self._residues):
            words = count()
            if words is not None:
                self.batch, self._residues = words, residues
        elif not self._residues and not known:
            self._recent.append(False)
        return expected

    def stepped(self, words: WordCounts | None, size: int) -> None:
        """Note how many words a step took that followed a batch of so many samples."""
        if size == self.size or self.step is None:
            self.step = words

    @property
    def is_fixed(self) -> bool:
        """Return whether batches take the same number of words nearly always: any of them can be predicted."""
        odd = len(self._recent) - sum(self._recent)
        return self.batch is not None and bool(self._recent) and odd <= _MOST_ODD * len(self._recent)

    def words_of_step(self, size: int) -> WordCounts | None:
        """Return the words of a step that follows a batch of so many samples."""
        return None if self.step is None else self._scaled(self.step, size)

    def words_between(self, size: int) -> WordCounts | None:
        """Return the words from the start of a batch of so many samples to that of the next one."""
        if self.batch is None or self.step is None:
            return None
        pairs = zip(self._scaled(self.batch, size), self._scaled(self.step, size), strict=True)
        return tuple([one + other for one, other in pairs])

    def _scaled(self, words: WordCounts, size: int) -> WordCounts:
        if size == self.size or not self.size:
            return words
        return tuple([count if count * size % self.size else count * size // self.size for count in words])

    # -- whether it pays --------------------------------------------------------------------------------------------

    def missed(self) -> None:
        """Note that a batch was not there, or began elsewhere: after some in a row nothing is predicted for a while."""
        self._misses += 1
        if self._misses >= _MISSES:
            self._begin_rest()

    def hit(self, waited_s: float, here_s: float) -> None:
        """Note that a batch was taken, after a wait; making it here would have taken `here_s`."""
        self._misses = 0
        self._hits += 1
        self._waits.append(waited_s / max(here_s, 1e-9))
        if self._hits >= _RECENT:
            self._rest = _REST
        if len(self._waits) == _RECENT and sum(self._waits) > _LONGEST_WAIT * _RECENT:
            self._begin_rest()

    def rests(self) -> bool:
        """Return whether the next batch is to be made without looking at any stream."""
        self._resting = max(0, self._resting - 1)
        return self._resting > 0

    def _begin_rest(self) -> None:
        self._resting, self._rest = self._rest + 1, min(_LONGEST_REST, 2 * self._rest)
        self._misses = self._hits = 0
        self._waits.clear()
