"""When a rank ends whose training cannot go on."""

import os
import signal
import threading
import time

import pytest

from flatout.ranks.hosts.leaving import RankLeaving
from flatout.schema.ranks import LEAVE_FILE

QUIET_S = 0.6  # twice as long as the thread sleeps


@pytest.fixture
def rank(tmp_path):
    """A rank that does not wait, with what it has done; its thread ends with the test."""

    class Rank:
        waits, own, folder, left = False, False, tmp_path, threading.Event()

    found = Rank()
    RankLeaving(str(tmp_path)).joined(lambda: found.waits, lambda: found.own, found.left.set)
    yield found
    found.waits = True
    (tmp_path / LEAVE_FILE).touch()
    assert found.left.wait(10) or found.own


def test_a_rank_that_waits_leaves_when_it_is_told(rank):
    rank.waits = True
    assert not rank.left.wait(QUIET_S)
    (rank.folder / LEAVE_FILE).touch()
    assert rank.left.wait(10)


def test_a_rank_that_writes_a_file_leaves_when_it_has_and_waits(rank):
    (rank.folder / LEAVE_FILE).touch()
    assert not rank.left.wait(QUIET_S)
    rank.waits = True
    assert rank.left.wait(10)


def test_a_rank_that_has_not_joined_the_others_waits_for_them(tmp_path, monkeypatch):
    left = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: left.set())
    (tmp_path / LEAVE_FILE).touch()
    RankLeaving(str(tmp_path))
    assert left.wait(10)


def test_a_script_that_distributes_itself_gets_sigterm(rank, monkeypatch):
    got = []
    monkeypatch.setattr(os, "kill", lambda pid, number: got.append((pid, number)))
    rank.own = True
    (rank.folder / LEAVE_FILE).touch()
    until = time.monotonic() + 10
    while not got and time.monotonic() < until:
        time.sleep(0.01)
    assert got == [(os.getpid(), signal.SIGTERM)]
