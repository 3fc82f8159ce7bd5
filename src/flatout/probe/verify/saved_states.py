"""What a script saves between two optimizer steps: a fingerprint of all that `torch.save` is given."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.verify.fingerprint import batch_print

__all__ = ["SavedStates"]


class SavedStates:
    """Notes what one thread saves, each time."""

    def __init__(self, thread: int, note: Callable[[str], None], guard: Callable[[Callable[[], None]], None]) -> None:
        """Say `note(fingerprint)` of everything that `thread` saves; `guard` runs what must never raise there."""
        self._thread, self._note, self._guard = thread, note, guard

    def install(self, seams: Seams) -> None:
        """Wrap `torch.save`, around whatever wraps it already."""
        seams.wrap("torch:save", self._save)

    def _save(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() == self._thread:
                hits.count += 1
                self._guard(lambda: self._note("".join(batch_print([obj])[1:])))
            return original(obj, *args, **kwargs)

        return save
