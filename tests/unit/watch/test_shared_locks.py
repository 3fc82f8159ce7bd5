"""Locks that a copy of the process would keep for ever where it is ended while it has one are not shared with it."""

import multiprocessing
import os
import signal
import sys
import threading
import types

import pytest

from flatout.watch.shared_locks import take_own_locks


class Bars:
    """As `tqdm.std.tqdm` has it: one lock for all processes."""

    @classmethod
    def set_lock(cls, lock):
        cls._lock = lock


class InBlack(Bars):
    """Takes the lock of its base."""


class InColour(Bars):
    """Has a lock of its own."""


@pytest.fixture
def bars(monkeypatch):
    """Stand in for the package, with locks that processes share."""
    monkeypatch.setitem(sys.modules, "tqdm.std", types.SimpleNamespace(tqdm=Bars))
    for kind in (Bars, InColour):
        monkeypatch.setattr(kind, "_lock", multiprocessing.get_context("fork").RLock(), raising=False)


def held_in_a_copy(end):
    """Fork a copy that takes both locks, and is killed while it has them."""
    listening, telling = os.pipe()
    copy = os.fork()
    if not copy:
        end()
        InBlack._lock.acquire()
        InColour._lock.acquire()
        os.write(telling, b"x")
        signal.pause()
    assert os.read(listening, 1)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    os.close(listening)
    os.close(telling)


@pytest.mark.parametrize("kind", [Bars, InBlack, InColour])
def test_a_copy_that_is_killed_keeps_no_lock_of_the_script_s(bars, kind):
    held_in_a_copy(take_own_locks)
    assert kind._lock.acquire(timeout=1)
    kind._lock.release()


def test_without_it_the_script_would_wait_for_ever(bars):
    held_in_a_copy(lambda: None)
    assert not InBlack._lock.acquire(timeout=0.1)


def test_without_the_package_nothing_is_done(monkeypatch):
    monkeypatch.delitem(sys.modules, "tqdm.std", raising=False)
    before = threading.active_count()
    take_own_locks()
    assert threading.active_count() == before
