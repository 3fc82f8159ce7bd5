"""Where a run is recorded: a folder of its own for each, and one diagnosis at a time in a working folder."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flatout.engine.claims import Claim, claims, drop, held, misfit
from flatout.engine.guard import GUARD_LOCK, end_left_over
from flatout.engine.restore import restore_files
from flatout.errors import UsageError

__all__ = ["one_at_a_time", "refusals", "restore_left_over", "run_folder"]


_DEPTHS = ("*/*", "*/*/trials/*")  # of a diagnosis, of one execution of a trial
_ROOM_BYTES = 64 * 1024  # without so much, nothing can be recorded


def run_folder(out: Path | None, slug: str) -> Path:
    """Make and return a fresh folder `<out>/<script>/<time>/` (by default below `.flatout`).

    Raises:
        UsageError: when it cannot be made.
    """
    top = out if out is not None else Path(".flatout")
    _refuse_links(*([top] if out is None else []), top / slug)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = (top / slug / (stamp + suffix)).absolute()
        try:
            folder.mkdir(parents=True)
            (folder / "parts").mkdir()
            (folder / "room").write_bytes(bytes(_ROOM_BYTES))
            (folder / "room").unlink()
        except FileExistsError:
            if not folder.is_dir():
                raise UsageError(f"{top} is no folder.", advice="Give another one with --out.") from None
            continue
        except OSError as error:
            raise UsageError(
                f"{top.absolute()} cannot be written ({error.strerror}).",
                "flatout keeps its recordings there.",
                "Give another folder with --out.",
            ) from None
        return folder
    raise UsageError(f"{top / slug} holds 99 recordings of this second.", advice="Give another folder with --out.")


def _refuse_links(*places: Path) -> None:
    """Refuse to record through a link, which may have come with the folder.

    Raises:
        UsageError: one of `places` is a link.
    """
    for place in places:
        if place.is_symlink():
            raise UsageError(
                f"{place} is a link to {os.readlink(place)}.",
                "It may have come with the folder, so nothing is recorded through it.",
                "Remove it, or name a folder with --out.",
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
                f"Another flatout (process {holder}) is at work in {Path.cwd()}.",
                "Two at once would measure each other.",
                "Wait for it, or stop it.",
            ) from None
        if _is_at(path, file):
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            return file
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def restore_left_over(out: Path | None, tell: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Put back files that an execution killed together with its guards left changed; return the folders it was in.

    Only journals in the user's own state folder count, and of them those of this project (`out` or the working folder).
    `tell` hears who is waited for.

    Raises:
        UsageError: a guard that outlived its flatout does not come to an end.
    """
    found = []
    for journal, claim in claims():
        if not _is_here(claim, out):
            continue
        folder = Path(claim.folder)
        with contextlib.suppress(OSError), held(journal, tell):  # a guard that outlived its flatout restores by itself
            if misfit(claim):
                continue  # told by `refusals`
            end_left_over(folder)
            if restore_files(folder):
                found.append(folder)
            (folder / GUARD_LOCK).unlink(missing_ok=True)
            drop(journal)
    return found


def refusals(out: Path | None) -> list[str]:
    """Return one line for each journal that is not followed, and forget those of this user's that fit nothing now.

    Called after `restore_left_over`.
    """
    told = []
    for journal, claim in claims():
        reason = misfit(claim)
        if reason and (_is_here(claim, out) or _identity(os.getcwd()) == tuple(claim.project_id)):
            told.append(f"nothing was put back from a run that was killed: {reason}")
            drop(journal)
    top = out if out is not None else Path(".flatout")
    foreign = sorted(place for depth in _DEPTHS for place in top.glob(f"{depth}/files/journal"))
    if foreign:
        told.append(
            f"{foreign[0]} is no journal of yours ({len(foreign)} such in {top}): it came with the folder, or from "
            "an older flatout; nothing was put back from it"
        )
    return told


def _is_here(claim: Claim, out: Path | None) -> bool:
    tops = [os.path.realpath(os.getcwd())] if out is None else [os.path.realpath(out)]
    return claim.project in tops or any(claim.folder.startswith(os.path.join(top, "")) for top in tops)


def _identity(place: str) -> tuple[int, int]:
    found = os.stat(place)
    return found.st_dev, found.st_ino
