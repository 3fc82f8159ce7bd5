"""Callbacks for Lightning and for the Trainer of transformers: each records the training it is given to."""

import contextlib
import importlib
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.inside.recording import Recording, recording

__all__ = ["lightning_callback", "trainer_callback"]


_open: list["_Stretch"] = []
"""The stretch that is under way: a Trainer that was interrupted never says that its training has ended."""


class _Stretch:
    """One recording that a callback opens and closes; safe to close twice."""

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.recording: Recording | None = None

    def begin(self) -> None:
        while _open:
            _open[-1].end()
        self.recording = self._stack.enter_context(recording(self._folder))
        _open.append(self)

    def end(self) -> None:
        if self in _open:
            _open.remove(self)
            self._stack.close()


def lightning_callback(folder: str | Path | None = None) -> Any:
    """Return a callback for Lightning 2: `Trainer(callbacks=[flatout.lightning_callback()])`.

    It records from the start of `fit` to its end: `callback.recording.report()`.

    Raises:
        UsageError: Lightning is not installed.
    """
    package = _first("lightning.pytorch", "pytorch_lightning", what="Lightning")
    stretch = _Stretch(folder)

    def on_train_start(self: Any, trainer: Any, pl_module: Any) -> None:
        stretch.begin()

    def leave(self: Any, *_: Any) -> None:
        stretch.end()

    body = {
        "on_train_start": on_train_start,
        "on_train_end": leave,
        "on_exception": leave,
        "recording": property(lambda self: stretch.recording),
    }
    return type("FlatoutCallback", (package.Callback,), body)()


def trainer_callback(folder: str | Path | None = None) -> Any:
    """Return a callback for the Trainer of transformers: `Trainer(..., callbacks=[flatout.trainer_callback()])`.

    It records from the start of `train` to its end: `callback.recording.report()`.

    Raises:
        UsageError: transformers is not installed.
    """
    package = _first("transformers", what="transformers")
    stretch = _Stretch(folder)

    def on_train_begin(self: Any, *_: Any, **__: Any) -> None:
        stretch.begin()

    def on_train_end(self: Any, *_: Any, **__: Any) -> None:
        stretch.end()

    body = {
        "on_train_begin": on_train_begin,
        "on_train_end": on_train_end,
        "recording": property(lambda self: stretch.recording),
    }
    return type("FlatoutCallback", (package.TrainerCallback,), body)()


def _first(*names: str, what: str) -> Any:
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise UsageError(
        f"{what} is not installed here.", advice="Install it, or use `with flatout.recording():` around the loop."
    )
