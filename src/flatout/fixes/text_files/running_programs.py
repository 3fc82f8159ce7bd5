"""Programs that the script has started and that run: they may read a file at any moment, so nothing waits meanwhile."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site
    from flatout.fixes.text_files.write_behind import WriteBehind

__all__ = ["RunningPrograms"]


class RunningPrograms:
    """Lets text wait only while none of them runs."""

    def __init__(self, site: "Site", behind: "WriteBehind") -> None:
        """None has been started yet."""
        self._site, self._behind = site, behind
        self._running: set[int] = set()
        self._forking: set[int] = set()  # threads whose forks are known

    def look(self) -> None:
        """Let text wait again where all of them have ended."""
        self._running = {number for number in self._running if _runs(number)}
        if self._site.enabled and not self._running and not self._behind.waits:
            self._behind.switch(on=True)

    def starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for the constructor of `subprocess.Popen`."""

        def init(process: Any, *args: Any, **kwargs: Any) -> None:
            self._behind.switch(on=False)
            with self.known_forks():
                original(process, *args, **kwargs)
            self._running.add(process.pid)

        return init

    def spawning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for a function that starts a program and hands its number to the script."""

        def spawn(*args: Any, **kwargs: Any) -> Any:
            self._site.fail("the script starts a program that may read a file at any moment")
            return original(*args, **kwargs)

        return spawn

    @contextlib.contextmanager
    def known_forks(self) -> Iterator[None]:
        """Let this thread fork without a word."""
        number = get_ident()
        own = number not in self._forking
        self._forking.add(number)
        try:
            yield
        finally:
            if own:
                self._forking.discard(number)

    def forked(self) -> None:
        """The process has a copy, which reads files as it likes."""
        ours = str(sys._getframe(1).f_globals.get("__name__")).startswith("flatout.")
        if not ours and get_ident() not in self._forking and self._site.enabled:
            self._site.fail("the script forks itself, and the copy may read a file at any moment")


def _runs(number: int) -> bool:
    """Return whether a process is there and has not ended; it is not waited for, which is the script's."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
