"""When nothing is predicted for a while: predictions fail, or batches of workers are waited for too long."""

from collections import deque

__all__ = ["Backoff"]

_MISSES = 3  # in a row
_REST, _LONGEST_REST = 16, 4096  # batches
_HITS = 16  # after so many all is forgiven, and so many waits are looked at
_LONGEST_WAIT = 1.0  # times what a batch takes here: where workers' are waited for longer, they do not pay


class Backoff:
    """Counts hits and misses of one loader; each rest is twice as long as the one before."""

    def __init__(self) -> None:
        """Begin without a rest."""
        self._misses = self._resting = self._hits = 0
        self._rest = _REST
        self._waits: deque[float] = deque(maxlen=_HITS)  # as shares of making a batch here

    def missed(self) -> None:
        """Note that a batch was not there, or began elsewhere."""
        self._misses += 1
        if self._misses >= _MISSES:
            self._begin_rest()

    def hit(self, waited_s: float, here_s: float) -> None:
        """Note that a batch was taken, after a wait; making it here would have taken `here_s`."""
        self._misses = 0
        self._hits += 1
        self._waits.append(waited_s / max(here_s, 1e-9))
        if len(self._waits) == _HITS and sum(self._waits) > _LONGEST_WAIT * _HITS:
            self._begin_rest()
        elif self._hits >= _HITS:
            self._rest = _REST

    def rests(self) -> bool:
        """Return whether the next batch is to be made without looking at any stream."""
        self._resting = max(0, self._resting - 1)
        return self._resting > 0

    def _begin_rest(self) -> None:
        self._resting, self._rest = self._rest + 1, min(_LONGEST_REST, 2 * self._rest)
        self._misses = self._hits = 0
        self._waits.clear()
