"""Which samples of a store are there: written by this process, or by other ranks that share its memory."""

import threading

import torch

__all__ = ["FilledRows"]


class FilledRows:
    """One flag a sample.

    What other ranks wrote counts only once `trust` was called: until then this process has not held any of it against
    its own data set. A lock is taken around flags that are shared: rows are written before them, and read after them.
    """

    def __init__(self, num_samples: int, shared: torch.Tensor | None = None) -> None:
        """Begin with nothing, or with what is told in `shared` (uint8, shape (num_samples,))."""
        self._own = torch.zeros(num_samples, dtype=torch.bool)
        self._shared = None if shared is None else shared.view(torch.bool)
        self._fence = threading.Lock()
        self._trusts = False
        self._number = 0  # at most: a sample may have been written twice
        self._counted = True
        self._others = False  # some were among those that were named last

    @property
    def number(self) -> int:
        """Return how many samples are there."""
        others = self._trusts and self._number < len(self._own)
        if others or not self._counted:
            self._number, self._counted = int(self._known().sum()), True
        return self._number

    @property
    def whole(self) -> bool:
        """Return whether every sample is there."""
        length = len(self._own)
        return (self._number >= length or self._trusts) and self.number == length

    def lacking(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that are not there; asked of NumPy, which keeps the interpreter's lock for so few.

        Where 64 threads wait for that lock, each call that gives it up costs 0.2 to 0.3 ms.
        """
        lacking = ~self._known().numpy()[indices.numpy()]
        return indices if lacking.all() else torch.from_numpy(indices.numpy()[lacking])

    def add(self, which: torch.Tensor | slice) -> None:
        """Take note of samples whose rows are written; a slice stands for some none of which was there."""
        if isinstance(which, slice):
            self._number += which.stop - which.start
        else:
            self._number += len(which)
            self._counted = False
        self._set(which)

    def all(self) -> None:
        """Take note that every sample is there."""
        self._number, self._counted = len(self._own), True
        self._set(slice(None))

    def some(self, number: int, turn: int) -> list[int]:
        """Return up to `number` samples that are there, others for each `turn`.

        Where other ranks are not trusted yet, samples of theirs, if there are any.
        """
        there = self._known()
        if self._shared is not None and not self._trusts:
            with self._fence:
                theirs = self._shared & ~self._own
            self._others = bool(theirs.any())
            there = theirs if self._others else there
        whole = there is self._own and self.whole
        places = range(len(there)) if whole else there.nonzero().flatten()
        return [
            int(places[(turn * 7919 + each * 104_729) % len(places)]) for each in range(number if len(places) else 0)
        ]

    def trust(self) -> None:
        """Count what other ranks wrote, from now on: the samples named last were as they should be."""
        self._trusts = self._trusts or self._others

    @property
    def doubted(self) -> bool:
        """Return whether there may be samples of other ranks, none of which has been looked at."""
        return self._shared is not None and not self._trusts

    def _known(self) -> torch.Tensor:
        if self._shared is None or not self._trusts:
            return self._own
        with self._fence:
            return self._shared

    def _set(self, which: torch.Tensor | slice) -> None:
        places = which.numpy() if isinstance(which, torch.Tensor) else which
        self._own.numpy()[places] = True
        if self._shared is not None:
            with self._fence:
                self._shared.numpy()[places] = True
