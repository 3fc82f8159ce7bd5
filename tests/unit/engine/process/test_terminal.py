"""A terminal of its own for a script's output: bytes arrive as they were written, and none is lost."""

import os
import sys
import termios

import pytest

from flatout.engine.process import terminal
from flatout.engine.process.terminal import OwnTerminal


class Stream:
    def __init__(self, is_terminal):
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def streams(monkeypatch):
    def be(stdout, stderr):
        monkeypatch.setattr(sys, "stdout", Stream(stdout))
        monkeypatch.setattr(sys, "stderr", Stream(stderr))

    return be


@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True)])
def test_only_streams_that_are_a_terminal_are_led_through_it(streams, kinds):
    chunks = []
    streams(*kinds)
    with OwnTerminal(chunks.append) as own:
        assert (own.stdout is not None, own.stderr is not None) == kinds
        script = os.dup(own.stdout if own.stdout is not None else own.stderr)
        assert os.isatty(script)
        own.started()
        os.write(script, b"epoch 1\nloss \xff\r\n")
        os.close(script)
    assert b"".join(chunks) == b"epoch 1\nloss \xff\r\n"


def test_what_is_no_terminal_stays_the_scripts(streams):
    streams(False, False)
    with OwnTerminal(print) as own:
        own.started()
        own.resize()
        assert (own.stdout, own.stderr) == (None, None)


def test_where_there_is_none_to_be_had_output_goes_where_it_went(streams, monkeypatch):
    def fail():
        raise OSError("out of pty devices")

    streams(True, True)
    monkeypatch.setattr(os, "openpty", fail)
    with OwnTerminal(print) as own:
        assert (own.stdout, own.stderr) == (None, None)


def test_a_script_that_was_never_started_leaves_nothing_open(streams):
    streams(True, True)
    before = len(os.listdir("/proc/self/fd"))
    with OwnTerminal(print):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_is_as_large_as_the_real_one(streams, monkeypatch):
    streams(True, True)
    plain = termios.tcgetwinsize
    monkeypatch.setattr(terminal.termios, "tcgetwinsize", lambda number: (50, 120) if number == 2 else plain(number))
    with OwnTerminal(print) as own:
        assert plain(own.stdout) == (50, 120)
