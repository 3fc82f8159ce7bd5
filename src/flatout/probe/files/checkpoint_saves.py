"""What counts as saving a checkpoint: `torch.save`, pickling, and putting a saved file in its place."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import CHECKPOINT

__all__ = ["SaveWatch"]

_IN_PLACE = ("os:replace", "os:rename", "shutil:copyfile")  # removing a large old file can take longer than writing


class SaveWatch:
    """Marks what the training thread spends on checkpoints."""

    def __init__(self, event_log: EventLog, num_steps: Callable[[], int]) -> None:
        """Watch nothing yet; `num_steps` gives the optimizer steps, or backward passes, so far."""
        self._event_log, self._num_steps = event_log, num_steps
        self._saved_after = -1  # as many steps
        self.before_save: Callable[[Any], None] | None = None

    def install(self, seams: Seams) -> None:
        """Wrap what saves."""
        seams.wrap("torch:save", self._save)
        seams.wrap("pickle:dump", self._part(self._note))
        for name in _IN_PLACE:
            seams.wrap(name, self._part(lambda: True))
        seams.wrap("os:fsync", self._part(lambda: self._saved_after == self._num_steps()))  # a log is written so, too

    def _note(self) -> bool:
        self._saved_after = self._num_steps()
        return True

    def _save(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            hits.count += 1
            if get_ident() == self._event_log.thread:
                self._note()
            with self._event_log.span(self._event_log.events.enter[CHECKPOINT]):
                if self.before_save is not None:
                    self.before_save(f)
                return original(obj, f, *args, **kwargs)

        return save

    def _part(self, counts: Callable[[], bool]) -> Callable[[Callable[..., Any], Hits], Callable[..., Any]]:
        """Return what makes a call part of a checkpoint where it `counts` as one."""
        event_log = self._event_log

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if get_ident() != event_log.thread or not counts():
                    return original(*args, **kwargs)
                hits.count += 1
                with event_log.span(event_log.events.checkpoint_from_host):
                    return original(*args, **kwargs)

            return call

        return make
