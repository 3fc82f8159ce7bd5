"""What a script saves between two optimizer steps: fingerprints of all that `torch.save` is given, part by part.

A part is an entry of a dictionary; all tensors that are entries by themselves are one. So a state with a time in it is
still told by its other parts.
"""

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.verify.fingerprint import batch_print

__all__ = ["SavedStates"]

_MOST = 32  # parts of a state; all that follow are one


class SavedStates:
    """Notes what one thread saves, each time."""

    def __init__(self, thread: int, note: Callable[[str], None], guard: Callable[[Callable[[], None]], None]) -> None:
        """Say `note(fingerprints)` of everything that `thread` saves; `guard` runs what must never raise there."""
        self._thread, self._note, self._guard = thread, note, guard

    def install(self, seams: Seams) -> None:
        """Wrap `torch.save`, around whatever wraps it already."""
        seams.wrap("torch:save", self._save)

    def _save(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() == self._thread:
                hits.count += 1
                self._guard(lambda: self._note(" ".join("".join(batch_print(part)[1:]) for part in _parts(obj))))
            return original(obj, *args, **kwargs)

        return save


def _parts(obj: Any) -> Iterator[list[Any]]:
    """Yield what stands for the parts of something that is saved."""
    if not isinstance(obj, dict):
        yield [obj]
        return
    entries = list(obj.items())
    together = [entry for entry in entries if isinstance(entry[1], torch.Tensor)]
    alone = [entry for entry in entries if not isinstance(entry[1], torch.Tensor)]
    yield [len(obj), together, alone[_MOST:]]
    yield from ([entry] for entry in alone[:_MOST])
