"""Programs that the script has started and that run: they may read a file at any moment, so nothing waits meanwhile."""

import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flatout.fixes.checkpoint.background_writer import QuietThreads
from flatout.machine import is_running

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
        self.forking = QuietThreads()  # whose forks are known

    def look(self) -> None:
        """Let text wait again where all of them have ended."""
        self._running = {number for number in self._running if is_running(number)}
        if self._site.enabled and not self._running and not self._behind.waits:
            self._behind.switch(on=True)

    def starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for the constructor of `subprocess.Popen`."""

        def init(process: Any, *args: Any, **kwargs: Any) -> None:
            self._behind.switch(on=False)
            with self.forking.quietly():
                original(process, *args, **kwargs)
            self._running.add(process.pid)

        return init

    def spawning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for a function that starts a program and hands its number to the script."""

        def spawn(*args: Any, **kwargs: Any) -> Any:
            self._site.fail("the script starts a program that may read a file at any moment")
            return original(*args, **kwargs)

        return spawn

    def forked(self) -> None:
        """The process has a copy, which reads files as it likes."""
        ours = str(sys._getframe(1).f_globals.get("__name__")).startswith("flatout.")
        if not ours and get_ident() not in self.forking.busy and self._site.enabled:
            self._site.fail("the script forks itself, and the copy may read a file at any moment")
