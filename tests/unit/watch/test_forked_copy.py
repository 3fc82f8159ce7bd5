"""A copy of the process cannot write to the user's files, whoever the user is and whatever torch does at a fork."""

import mmap
import os
import shutil
import subprocess
import sys

import pytest

from flatout.watch.forked_copy import ask_a_copy, go_on_alone

ASKED = """
import os, torch
from flatout.watch.forked_copy import ask_a_copy

{before}

def write():
    try:
        os.mkdir("made")
    except OSError as error:
        return error.strerror, len(os.listdir("/proc/self/task"))

print(ask_a_copy(write))
"""


def run(program, code):
    return subprocess.run([*program, sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
@pytest.mark.parametrize("before", ["", "torch.set_num_threads(2)", "torch.set_num_threads(1)"])
@pytest.mark.few(1)
@pytest.mark.slow
def test_nothing_is_written_where_only_a_user_namespace_is_allowed(before, workdir):
    unprivileged = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    alone = subprocess.run([*unprivileged, "unshare", "--user", "--mount", "true"], capture_output=True, check=False)
    if alone.returncode:
        pytest.skip("the kernel allows no user namespace here")
    assert "value=('Read-only file system', 1)" in run(unprivileged, ASKED.format(before=before))
    assert not os.path.exists("made")


def test_who_goes_on_alone_answers_and_ends_as_before():
    def ask():
        first = os.getpid()
        return go_on_alone(), os.getpid() == first, len(os.listdir("/proc/self/task"))

    answer = ask_a_copy(ask)
    assert answer.failed == ""
    assert answer.value == (True, False, 1)


@pytest.mark.slow
def test_who_goes_on_alone_is_ended_with_who_waits_for_it():
    answer = ask_a_copy(lambda: go_on_alone() and __import__("time").sleep(60), longest_s=1.0)
    assert answer.failed == "a copy of the process gave no answer in 1 s"  # the fixture finds nothing left behind


def test_a_map_of_a_file_that_is_shorter_by_now_harms_no_copy(workdir):
    with open("rows.bin", "w+b") as file:
        file.write(b"a" * 2 * mmap.PAGESIZE)
        file.flush()
        rows = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(mmap.PAGESIZE)

        def write():
            before = bytes(rows[:1])
            rows[:1] = b"b"
            return before, bytes(rows[:1])

        assert ask_a_copy(write).value == (b"a", b"b")
        assert rows[:1] == b"a"
