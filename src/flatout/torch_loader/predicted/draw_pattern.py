"""How many random words a batch and the step after it take, as far as was seen."""

from collections import deque
from collections.abc import Callable

from flatout.torch_loader.predicted.random_streams import WordCounts

__all__ = ["DrawPattern"]

_RECENT = 16  # batches
_MOST_ODD = 0.25  # of them; where more draw another number of words, one process makes one batch after the other
_ODD_STEPS = 2  # in a row: nobody can tell what the next one draws


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
        self._last_step: WordCounts | None = None
        self._odd_steps = 0  # in a row, that took other numbers of words than steps did before
        self._residues: tuple[int | None, ...] = ()  # of the batch that was counted
        self._latest: tuple[int | None, ...] = ()
        self._recent: deque[bool] = deque(maxlen=_RECENT)  # whether batches took as many words as the counted one

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
        if size != self.size and self.step is not None:
            return
        if words is not None and (self.step is None or words in (self.step, self._last_step)):
            self.step, self._odd_steps = words, 0
        else:
            self._odd_steps += 1
        self._last_step = words

    def stepped_as_expected(self) -> None:
        """Note that a step took as many words as was expected."""
        self._odd_steps = 0

    @property
    def is_fixed(self) -> bool:
        """Return whether batches take the same number of words nearly always: any of them can be predicted."""
        odd = len(self._recent) - sum(self._recent)
        return self.batch is not None and bool(self._recent) and odd <= _MOST_ODD * len(self._recent)

    def words_of_step(self, size: int) -> WordCounts | None:
        """Return the words of a step that follows a batch of so many samples, None where nobody can tell."""
        steady = self.step is not None and self._odd_steps < _ODD_STEPS
        return self._scaled(self.step, size) if steady and self.step is not None else None

    def words_between(self, size: int) -> WordCounts | None:
        """Return the words from the start of a batch of so many samples to that of the next one."""
        step = self.words_of_step(size)
        if self.batch is None or step is None:
            return None
        return tuple([one + other for one, other in zip(self._scaled(self.batch, size), step, strict=True)])

    def _scaled(self, words: WordCounts, size: int) -> WordCounts:
        if size == self.size or not self.size:
            return words
        return tuple([count if count * size % self.size else count * size // self.size for count in words])
