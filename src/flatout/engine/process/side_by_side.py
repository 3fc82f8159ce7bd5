"""Starts several command lines at once under one guard and waits for them: two arms of a timing, side by side.

Run by the parent's own Python, isolated (`-I`), so that the probes never enter it. When one process ends
with an error the others are ended too: a block without its partner is worth nothing.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["main"]

_GRACE_S = 2.0


def main() -> int:
    """Run what the specification in `argv[1]` lists; return the first exit code that is not 0, as a shell would."""
    path = Path(sys.argv[1])
    spec = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()  # command lines may hold secrets
    processes = [
        subprocess.Popen(each["command"], cwd=each["working"], env={**os.environ, **each["environment"]})
        for each in spec
    ]
    code = 0
    while any(process.poll() is None for process in processes):
        failed = [process.returncode for process in processes if process.returncode]
        if failed:
            code = code or failed[0]
            _end(processes)
        time.sleep(0.02)
    code = code or next((process.returncode for process in processes if process.returncode), 0)
    return code if code >= 0 else 128 - code


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        if process.poll() is None:
            process.kill()
