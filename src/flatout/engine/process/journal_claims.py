"""Claims: which execution a journal belongs to, so that nobody else's notes are ever followed.

A claim lies beside its journal in the user's state folder (mode 0700) and names user, machine, the project's and the
recording's folder by path, device and inode, and a random word that is repeated in the recording. A project that was
copied, moved, or sent by somebody else has no claim, or one that does not fit: then nothing is put back.
"""

import contextlib
import fcntl
import json
import os
import platform
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flatout.errors import UsageError
from flatout.state_folder import journal_folder, own_folder, state_folder

__all__ = ["LOCK_FILE", "Claim", "claims", "drop", "held", "misfit", "write_claim"]

CLAIM_FILE = "claim.json"
LOCK_FILE = "lock"
_WORD_FILE = "claim"  # in the recording
_WAIT_S = 25.0  # a guard asks politely for 2 s, then kills, then puts files back


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose a journal is, and of what."""

    user: int
    machine: str
    project: str
    project_id: tuple[int, int]  # device, inode
    folder: str
    folder_id: tuple[int, int]
    word: str
    started_unix_s: float


def write_claim(folder: Path, project: str) -> Path:
    """Claim the execution recorded in `folder`, of a script started in `project`; return its journal's folder.

    Raises:
        UsageError: the user's state folder cannot be written, or is not his alone.
    """
    word = secrets.token_hex(16)
    folder, project = Path(os.path.realpath(folder)), os.path.realpath(project)
    try:
        for made in (state_folder(), os.path.join(state_folder(), "journals")):
            own_folder(made)
        journal = Path(own_folder(journal_folder(str(folder))))
        claim = Claim(os.geteuid(), platform.node(), project, _identity(project), str(folder), _identity(folder), word,
                      time.time())  # fmt: skip
        _write_own(journal / CLAIM_FILE, json.dumps(asdict(claim)))
        (folder / "files").mkdir(exist_ok=True)
        _write_own(folder / "files" / _WORD_FILE, word)
    except OSError as error:
        raise UsageError(
            f"{error.filename or state_folder()} cannot be used ({error.strerror}).",
            "flatout stores there what it needs to restore your files; only you may have access to it.",
            "Set XDG_STATE_HOME to a folder of your own.",
        ) from None
    return journal


def claims() -> list[tuple[Path, Claim]]:
    """Return this user's claims on this machine with the folders of their journals."""
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(os.path.join(state_folder(), "journals")), key=lambda one: one.name):
            claim = _read(Path(entry.path))
            if claim is not None and claim.user == os.geteuid() and claim.machine == platform.node():
                found.append((Path(entry.path), claim))
    return found


def misfit(claim: Claim) -> str:
    """Return why what `claim` speaks of is not what it was, "" where it fits."""
    if _identity(claim.project) != tuple(claim.project_id):
        return f"{claim.project} was moved or replaced since"
    if _identity(claim.folder) != tuple(claim.folder_id):
        return f"{claim.folder} was moved or replaced since"
    if _text(Path(claim.folder) / "files" / _WORD_FILE) != claim.word:
        return f"{claim.folder} belongs to another start"
    return ""


def drop(journal: Path) -> None:
    """Forget a claim with its journal."""
    shutil.rmtree(journal, ignore_errors=True)


@contextlib.contextmanager
def held(journal: Path, tell: Callable[[str], None], wait_s: float = _WAIT_S) -> Iterator[None]:
    """Hold the lock of a journal, which a guard that outlived its flatout may still need.

    `tell` is told who is waited for, as often as it is looked.

    Raises:
        UsageError: it is not free after `wait_s` seconds.
    """
    path = journal / LOCK_FILE
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    until = time.monotonic() + wait_s
    try:
        while not _locked(file):
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            if time.monotonic() > until:
                raise UsageError(
                    f"Process {holder} has held {path} for {wait_s:.0f} s.",
                    "It is restoring the files of a run that was killed here.",
                    f"Wait for it, or end it: kill {holder}",
                )
            tell(f"waiting for process {holder}, which is restoring files")
            time.sleep(0.2)
        yield
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _identity(place: str | Path) -> tuple[int, int]:
    try:
        found = os.lstat(place)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino


def _write_own(path: Path, text: str) -> None:
    """Write a file that is this user's alone; what lies there is replaced, never followed."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _text(path: Path) -> str:
    """Return what a small file of this user says; nothing where it is a link, a pipe, or somebody else's."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, "rb") as opened:
        found = os.fstat(file)
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        return opened.read(1 << 16).decode("utf-8", "replace") if own else ""


def _read(journal: Path) -> Claim | None:
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        body = json.loads(_text(journal / CLAIM_FILE))
        claim = Claim(**body)
        whole = isinstance(claim.project, str) and isinstance(claim.folder, str) and len(claim.word) == 32
        return claim if whole and os.path.isabs(claim.project) and os.path.isabs(claim.folder) else None
    return None
