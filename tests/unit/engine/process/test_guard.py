"""The process between flatout and the script: its bounds on output, and how it ends what is left.

Modules: flatout.engine.process.masked_signals.
"""

import os
import signal
import subprocess
import threading
import time

import psutil
import pytest

from flatout.engine.process import guard
from flatout.engine.process.guard import _Output, end_left_over, end_processes
from flatout.engine.process.masked_signals import block_signals
from flatout.schema.order import ORDER_VARIABLE


@pytest.fixture
def started():
    """A function that starts a process, which has ended when the test has."""
    children = []

    def start(*command, **named):
        children.append(subprocess.Popen(command, **named))
        return psutil.Process(children[-1].pid)

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_processes_are_asked_to_end_and_killed_where_they_do_not(started, tmp_path):
    deaf = started("sh", "-c", "trap '' TERM; touch ready; read x", cwd=tmp_path, stdin=subprocess.PIPE)
    polite = started("sleep", "60")
    while not (tmp_path / "ready").exists():
        time.sleep(0.001)
    end_processes([deaf, polite], polite_s=0.1)
    assert not any(each.is_running() for each in (deaf, polite))
    end_processes([deaf, polite])  # which are gone


def test_only_what_carries_the_order_of_a_folder_is_ended(started, tmp_path):
    ours, others = tmp_path / "run", tmp_path / "run-2"
    left = started("sleep", "60", env={ORDER_VARIABLE: str(ours / "order.json")})
    other = started("sleep", "60", env={ORDER_VARIABLE: str(others / "order.json")})
    end_left_over(ours)
    assert not left.is_running()
    assert other.is_running()


def copied(tmp_path, *chunks):
    reader, writer = os.pipe()
    output = _Output(reader, tmp_path / "log")
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    output.join()
    os.close(reader)
    return (tmp_path / "log").read_bytes()


def test_output_within_bounds_is_kept_whole(tmp_path):
    assert copied(tmp_path, b"epoch 1\n", b"epoch 2\n") == b"epoch 1\nepoch 2\n"


def test_of_long_output_the_head_and_the_tail_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "_HEAD_BYTES", 10)
    monkeypatch.setattr(guard, "_TAIL_BYTES", 4)
    assert copied(tmp_path, b"0123456789" + b"x" * 100) == b"0123456789" + b"x" * 100  # the head ends with a chunk
    chunks = [bytes([65 + number]) * 5 for number in range(6)]
    monkeypatch.setattr(guard.os, "read", lambda stream, size: chunks.pop(0) if chunks else b"")
    assert copied(tmp_path, b"") == b"AAAAABBBBB\n[... 16 bytes of output left out ...]\nFFFF"


@pytest.mark.parametrize(("ready", "asked"), [(True, True), (False, False)])
def test_the_parents_word_or_its_end_ends_the_waiting(monkeypatch, ready, asked):
    class Process:
        polls = 0

        def poll(self):
            self.polls += 1
            return 0 if self.polls > 3 else None

    monkeypatch.setattr(guard.select, "select", lambda *_: ([0] if ready else [], [], []))
    monkeypatch.setattr(guard.os, "read", lambda *_: b"")
    assert guard._wait(Process()) is asked


def test_threads_of_ours_take_no_signals():
    found = []

    def work():
        block_signals()
        found.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1} <= found[0]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
