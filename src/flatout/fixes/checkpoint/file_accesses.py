"""Make every access of Python code to a file wait until that file is written."""

import functools
import os
import sys
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from flatout.fixes.checkpoint.background_writer import QuietThreads

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["HeldFiles", "hold_back"]

_PATHS = {  # audit event: which of its arguments are paths
    **dict.fromkeys(("open", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.listdir", "os.scandir", "os.getxattr", "os.setxattr", "os.listxattr"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
    **dict.fromkeys(("shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree"), (0, 1)),
    **dict.fromkeys(("shutil.move", "shutil.rmtree", "sqlite3.connect"), (0,)),
}
_FOLDERS = frozenset(("os.listdir", "os.scandir"))  # given a descriptor they name no path
_EVERYTHING = frozenset(  # another program, or one that we cannot follow: whatever it reads must be there
    (
        *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "shutil.make_archive"),
        *("resource.setrlimit", "resource.prlimit"),  # what was saved before may be larger than files may be then
        "os.chdir",  # names mean other files then
    )
)
_NATIVE = ("torch.jit:save", "torch.jit:RecursiveScriptModule.save", "torch.jit:load")
"""What opens files by code that Python sees nothing of."""
_RIGHTS = (  # without which, or in another place, what was saved before could not be written any more
    *("closerange", "chroot", "setuid", "seteuid", "setreuid", "setresuid", "setgid", "setegid", "setregid"),
    *("setresgid", "setgroups", "initgroups"),
)
_SIGNALS = frozenset(("os.kill", "os.killpg", "signal.pthread_kill"))  # to whom they tell that it is there, or to us
_UNAUDITED = ("stat", "lstat", "access")  # and with them os.path.exists, getsize, pathlib


class HeldFiles(Protocol):
    """Files that accesses wait for."""

    @property
    def pending(self) -> Any:
        """Return what is still to be written; nothing is asked while it is empty."""

    @property
    def threads(self) -> QuietThreads:
        """Return the threads whose accesses concern nobody."""

    def place(self, path: Any) -> str | None:
        """Return how `concerned` knows a path: "" for what is none of ours, None where that cannot be told."""

    def concerned(self, path: str | None) -> bool:
        """Return whether something is still to be written there; None: anywhere."""

    def wait(self, path: str | None = None) -> None:
        """Wait until that is written; without a path, for everything."""

    def settle(self) -> None:
        """Wait for everything, and raise nothing."""


def hold_back(site: "Site", background: HeldFiles) -> None:
    """Let accesses to files that are still to be written wait, from now on and as long as the process lives."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if background.pending:
            _audited(background, event, args)

    for name in _UNAUDITED:
        plain = getattr(os, name)
        site.wrap(f"os:{name}", partial(_looking, background))
        for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if plain in supported:  # `shutil` asks by the function itself
                supported.add(getattr(os, name))
    rights = (f"os:{name}" for name in _RIGHTS if hasattr(os, name))
    for name in ("multiprocessing.util:spawnv_passfds", *_NATIVE, *rights):
        site.wrap(name, partial(_after_all, background))
    sys.addaudithook(hook)


def _audited(background: HeldFiles, event: str, args: tuple[Any, ...]) -> None:
    if event in _EVERYTHING:
        _wait(background, (None,))
    elif event in _SIGNALS:
        if get_ident() not in background.threads.busy:
            background.settle()
    elif event in _PATHS:
        paths = tuple(args[at] for at in _PATHS[event] if at < len(args))
        if event in _FOLDERS or not isinstance(paths[0], int):
            _wait(background, paths)


def _looking(background: HeldFiles, original: Callable[..., Any]) -> Callable[..., Any]:
    def look(path: Any, *args: Any, **kwargs: Any) -> Any:
        if background.pending and not isinstance(path, int):  # a file that was open before is another one
            _wait(background, (path,))
        return original(path, *args, **kwargs)

    return look


def _after_all(background: HeldFiles, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if get_ident() not in background.threads.busy:
            background.wait()
        return original(*args, **kwargs)

    return call


def _wait(background: HeldFiles, paths: tuple[Any, ...]) -> None:
    """Wait where one of `paths` concerns a file that is still to be written; None: all of them."""
    if get_ident() in background.threads.busy:
        return
    with background.threads.quietly():
        places = [background.place(path) for path in paths]
    for place in places:
        if place is None or (place and background.concerned(place)):
            background.wait(place)
