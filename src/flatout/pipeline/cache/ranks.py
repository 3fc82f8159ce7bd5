"""Ranks of one training on one machine: how many there are, and memory that they have in common."""

import contextlib
import hashlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from flatout.watch.script_signals import any_but_signals

__all__ = ["SharedBlock", "local_ranks"]

_TOLD = (  # by torchrun and what builds on it, Open MPI, MPICH
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
)
_OF_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID")


def local_ranks() -> int:
    """Return how many processes of this training run on this machine; where nobody tells, the ranks of all machines."""
    for name in _TOLD:
        with contextlib.suppress(ValueError):
            if (number := int(os.environ.get(name, ""))) > 0:
                return number
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


class SharedBlock:
    """Memory under one name for all ranks of this machine: whoever comes first makes it, the others join.

    It has no name in any file system and is gone with the last process that holds it, however that ends: what is found
    under the name is the process that made it, whose open file `/proc` shows. Linux only.
    """

    def __init__(self, name: str, num_bytes: int) -> None:
        """Make or join the block of `num_bytes` zeros.

        Raises:
            OSError: there is no such memory on this system, or no room.
        """
        told = "\0".join([name, str(num_bytes), str(os.getppid()), *(os.environ.get(one, "") for one in _OF_JOB)])
        self._label = f"flatout-{hashlib.sha256(told.encode()).hexdigest()[:32]}"
        self._place = Path(tempfile.gettempdir()) / f"{self._label}-{os.getuid()}"
        self._file, self._pid = -1, os.getpid()
        self.joined = False
        with _locked(self._place) as listed:
            file = self._find(listed, num_bytes)
            if file < 0:
                file = self._file = os.memfd_create(self._label)
                os.ftruncate(file, num_bytes)
                os.ftruncate(listed, 0)
                os.pwrite(listed, f"{os.getpid()} {file}".encode(), 0)
            self.joined = self._file < 0
        try:
            self.memory = torch.frombuffer(mmap.mmap(file, num_bytes), dtype=torch.uint8)
        finally:
            if self.joined:
                os.close(file)

    def close(self) -> None:
        """Let nobody join any more; the memory stays with those who hold it."""
        if self._file >= 0 and self._pid == os.getpid():  # a worker of the loader has it, too
            with contextlib.suppress(OSError):
                os.close(self._file)
                self._place.unlink()
            self._file = -1

    def _find(self, listed: int, num_bytes: int) -> int:
        """Return the open file of whoever made the block, -1 when that process is gone or is another one by now."""
        try:
            pid, number = os.pread(listed, 64, 0).split()
            link = f"/proc/{int(pid)}/fd/{int(number)}"
            if os.readlink(link) != f"/memfd:{self._label} (deleted)":
                return -1
            file = os.open(link, os.O_RDWR)
        except any_but_signals(OSError, ValueError):
            return -1
        if os.fstat(file).st_size == num_bytes:
            return file
        os.close(file)
        return -1


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[int]:
    """Open a file of this user's, alone."""
    import fcntl

    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(file).st_uid != os.getuid():
            raise OSError(f"{place} is somebody else's")
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
