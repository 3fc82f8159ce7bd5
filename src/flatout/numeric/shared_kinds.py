"""For which kinds of values forked workers have proven compiled code: their parent has it before the next are forked.

A worker that is forked has no compiled code of the workers before it. It tells through a file without a name, as text,
for which piece and kinds it has proven it; the process that forks it reads that before each fork.
"""

import contextlib
import json
import os
import sys
import tempfile
from typing import Any

from flatout.numeric.hot_code import HotCode
from flatout.numeric.kinds import Kind

__all__ = ["share"]


class _Told:
    """The file, how far this process has read it, and the pieces that it has in common with its workers."""

    def __init__(self) -> None:
        self.pieces: list[HotCode] = []
        self.file: Any = None
        self.read = 0
        self.common = 0  # pieces that were there when this process was forked
        os.register_at_fork(before=self.learn, after_in_parent=_unlocked, after_in_child=self.forked)

    def forked(self) -> None:
        """This process is a worker from now on."""
        self.common = len(self.pieces) if self.file is not None else 0
        _unlocked()

    def tell(self, number: int, key: tuple[Any, ...]) -> None:
        """Write down what this worker has proven."""
        if number < self.common:
            plain = [each.plain() if isinstance(each, Kind) else each for each in key]
            with contextlib.suppress(OSError):
                os.write(self.file.fileno(), json.dumps([number, plain]).encode() + b"\n")

    def learn(self) -> None:
        """Compile what workers have told, let the next ones tell, and wait until no other thread compiles."""
        self._learn()
        _locked()

    def _learn(self) -> None:
        try:
            if self.file is None:
                self.file = tempfile.TemporaryFile("ab+")  # noqa: SIM115  as long as the process
            text = os.pread(self.file.fileno(), 1 << 20, self.read)
            whole = text[: text.rfind(b"\n") + 1]
            self.read += len(whole)
            for line in whole.splitlines():
                number, plain = json.loads(line)
                key = tuple(Kind.of_plain(each) if isinstance(each, list) else each for each in plain)
                self.pieces[number].take(key)
        except (OSError, ValueError, TypeError, IndexError):
            return


def _locked() -> None:
    """Hold numba's lock over a fork, or a thread that compiles meanwhile would keep it for good in the new process."""
    locks = sys.modules.get("numba.core.compiler_lock")
    if locks is not None:
        _held.append(locks.global_compiler_lock)
        _held[-1].acquire()


def _unlocked() -> None:
    while _held:
        _held.pop().release()


_held: list[Any] = []
_told: list[_Told] = []


def share(piece: HotCode) -> None:
    """Let workers that are forked later tell for which kinds compiled code of `piece` is proven."""
    if not hasattr(os, "fork"):
        return
    if not _told:
        _told.append(_Told())
    told, number = _told[0], len(_told[0].pieces)
    told.pieces.append(piece)
    piece.on_proven = lambda key: told.tell(number, key)
