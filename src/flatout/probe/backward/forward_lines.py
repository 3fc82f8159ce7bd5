"""The forward line that made a node of the graph: anomaly mode without its search for NaN, for a few steps.

In anomaly mode torch notes for each node the Python stack that made it. Here it notes the user's innermost line alone,
which costs a fraction. The mode is never touched where the script asks for it itself.
"""

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import user_stack
from flatout.schema.run import Frame

__all__ = ["ForwardLines", "forward_line", "is_of_recurrent_layer"]

_STACK = "traceback_"  # where torch puts it in the metadata of a node
_RECURRENT = torch.nn.modules.rnn.__file__
_NEAR = 3  # frames


class _Line(str):
    """A place, in the words in which torch prints the stack of a node that failed."""

    __slots__ = ("place", "recurrent")
    place: Frame
    recurrent: bool  # torch made the node inside of an LSTM, a GRU or an RNN


class ForwardLines:
    """Switches the mode on for some steps."""

    def __init__(self) -> None:
        """It is off."""
        self.on = False
        self._asked = False  # by the script
        self._checks_nan = True
        self._seams = Seams()

    def install(self, seams: Seams) -> None:
        """Be told when the script wants anomaly detection."""
        for name in ("set_detect_anomaly", "detect_anomaly"):
            seams.wrap(f"torch.autograd.anomaly_mode:{name}.__init__", self._noted)

    def begin(self) -> bool:
        """Note the lines of nodes that this thread makes from now on, unless the script detects anomalies."""
        if self._asked or torch.is_anomaly_enabled():
            return False
        self._checks_nan = torch.is_anomaly_check_nan_enabled()
        if not self._seams.wrap("torch.fx.traceback:format_stack", self._in_place_of_stacks(get_ident())):
            return False
        self.on = True
        torch.set_anomaly_enabled(True, False)
        return True

    def end(self) -> None:
        """Leave the mode as it was."""
        if self.on:
            self.on = False
            torch.set_anomaly_enabled(False, self._checks_nan)
            self._seams.undo()

    def _noted(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> None:
            hits.count += 1
            if not str(sys._getframe(1).f_globals.get("__name__", "")).startswith("torch."):
                self._asked = True
                self.end()  # what it puts back later is the mode before us
            original(*args, **kwargs)

        return init

    def _in_place_of_stacks(self, thread: int) -> Callable[[Callable[..., Any], Hits], Callable[..., Any]]:
        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def format_stack() -> list[str]:
                if not self.on or get_ident() != thread:
                    return list(original())
                found = user_stack(sys._getframe(1), most=1)
                if not found:
                    return []
                file, number, function = found[0]
                line = _Line(f'  File "{file}", line {number}, in {function}\n')
                line.place = Frame(*found[0])
                line.recurrent = _is_in_recurrent_layer(sys._getframe(1))
                return [line]

            return format_stack

        return make


def _is_in_recurrent_layer(frame: Any) -> bool:
    """Return whether torch's own layer is the innermost code, seams aside."""
    for _ in range(_NEAR):
        if frame is None or frame.f_code.co_filename == _RECURRENT:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _RECURRENT


def is_of_recurrent_layer(node: Any) -> bool:
    """Return whether a node was made by an LSTM, a GRU or an RNN of torch's, where that was noted."""
    noted = node.metadata.get(_STACK)
    return isinstance(noted, list) and bool(noted) and isinstance(noted[0], _Line) and noted[0].recurrent


def forward_line(node: Any) -> Frame | None:
    """Return the user's line that made a node, where that was noted."""
    noted = node.metadata.get(_STACK)
    return noted[0].place if isinstance(noted, list) and noted and isinstance(noted[0], _Line) else None
