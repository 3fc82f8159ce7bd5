"""Where a run is recorded: a folder of its own for each, and one diagnosis at a time in a working folder."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flatout.errors import UsageError

__all__ = ["one_at_a_time", "remove_left_over_locks", "run_folder"]


_ROOM_BYTES = 64 * 1024  # without so much, nothing can be recorded


def run_folder(out: Path | None, slug: str) -> Path:
    """Make and return a fresh folder `<out>/<script>/<time>/` (by default below `.flatout`).

    Raises:
        UsageError: when it cannot be made.
    """
    top = out if out is not None else Path(".flatout")
    _refuse_links(out, top, slug)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = (top / slug / (stamp + suffix)).absolute()
        try:
            folder.mkdir(parents=True, mode=0o700)  # what a script says and is given concerns nobody else
            (folder / "parts").mkdir(mode=0o700)
            (folder / "room").write_bytes(bytes(_ROOM_BYTES))
            (folder / "room").unlink()
        except FileExistsError:
            if not folder.is_dir():
                raise UsageError(f"{top} is not a folder.", advice="Give another one with --out.") from None
            continue
        except OSError as error:
            raise UsageError(
                f"{top.absolute()} cannot be written ({error.strerror}).",
                "flatout keeps its recordings there.",
                "Give another folder with --out.",
            ) from None
        return folder
    raise UsageError(
        f"{top / slug} already holds 99 recordings of this second.", advice="Give another folder with --out."
    )


def _refuse_links(out: Path | None, top: Path, slug: str) -> None:
    """Refuse a link in place of a folder of ours: whoever made it would decide where recordings go.

    Raises:
        UsageError: there is one; a link that was named with --out is the user's own.
    """
    linked = next((each for each in ((top,) if out is None else ()) + (top / slug,) if each.is_symlink()), None)
    if linked is not None:
        raise UsageError(
            f"{linked} is a link to {os.path.realpath(linked)}.",
            "Recordings would be written outside this folder.",
            "Name the folder for recordings with --out.",
        )


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the working folder for this diagnosis: two at once would slow each other and mix up their files.

    Raises:
        UsageError: when another flatout works in it, or the file that says so cannot be written.
    """
    here = hashlib.sha1(os.fsencode(os.path.realpath(os.getcwd()))).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"flatout-{os.getuid()}-{here}.lock"
    try:
        file = _locked(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).",
            "With it flatout sees to it that no two of it measure each other in one folder.",
            "Give another folder for temporary files with TMPDIR.",
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(file)


def _locked(path: Path) -> int:
    """Open and lock `path`, which its last holder may be about to take away; return the file descriptor."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise UsageError(
                f"Another flatout (process {holder}) is running in {Path.cwd()}.",
                "Two at once would disturb each other's measurements.",
                "Wait for it, or stop it.",
            ) from None
        if _is_at(path, file):
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            return file
        os.close(file)


def remove_left_over_locks() -> None:
    """Remove lock files of this user whose flatout was killed; it had no time to."""
    own = f"flatout-{os.getuid()}-*.lock"
    for path in Path(tempfile.gettempdir()).glob(own):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, file) and os.fstat(file).st_uid == os.geteuid():
                    path.unlink()
            finally:
                os.close(file)


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
