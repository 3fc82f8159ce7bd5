"""Small file systems, for what happens on full and on read-only ones."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["mounted"]


@contextlib.contextmanager
def mounted(size: str) -> Iterator[Path]:
    """Give a file system of `size`, "4m" for instance; skips the test where mounting is not allowed."""
    folder = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("mounting needs more rights")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
