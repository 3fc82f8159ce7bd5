"""The end of ranks and of what they have left: real processes, with a launcher's variables."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from flatout.ranks.hosts import left_over
from flatout.schema.ranks import LAUNCHER_VARIABLE, SESSION_VARIABLE

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
WAIT = "print(1, flush=True); import time; time.sleep(600)"


def begin(code, launcher, *, session="own"):
    """Start Python in a session of its own, which says when it is ready."""
    environment = {**os.environ, LAUNCHER_VARIABLE: str(launcher)}
    if session == "other":
        environment[SESSION_VARIABLE] = "1"
    else:  # as a child of a rank has inherited it
        code = f"import os, sys; os.environ['{SESSION_VARIABLE}'] = str(os.getsid(0)); " + (
            f"os.execv(sys.executable, [sys.executable, '-c', {code!r}])"
        )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout.readline() == b"1\n"
    return process


@pytest.fixture
def started():
    found = []
    yield found
    for process in found:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_what_a_rank_has_left_is_ended_and_nothing_else(started, monkeypatch):
    monkeypatch.setattr(left_over, "_TERMINATED_S", 0.3)
    left, deaf, daemon, foreign = started[:] = [
        begin(WAIT, os.getpid()),
        begin(DEAF + WAIT, os.getpid()),
        begin(WAIT, os.getpid(), session="other"),
        begin(WAIT, 1),
    ]
    left_over.end_left_over()
    assert left.wait(10) == -signal.SIGTERM
    assert deaf.wait(10) == -signal.SIGKILL
    assert daemon.poll() is foreign.poll() is None


@pytest.mark.slow
def test_ranks_get_a_while_to_end(started, monkeypatch):
    monkeypatch.setattr(left_over, "_TERMINATED_S", 0.3)
    saving, deaf = started[:] = [begin(WAIT, 1), begin(DEAF + WAIT, 1)]
    ranks = [psutil.Process(one.pid) for one in started]
    monkeypatch.setattr(psutil.Process, "children", lambda self: ranks)
    assert not left_over.wait_for_ranks(0.1)
    left_over.end_ranks()
    assert left_over.wait_for_ranks(5)
    assert (saving.wait(10), deaf.wait(10)) == (-signal.SIGTERM, -signal.SIGKILL)
