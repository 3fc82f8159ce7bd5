"""Lines that a script prints, as they reach the streams of the process."""

import logging
import sys
import threading

import pytest

from flatout.probe.core.seams import Seams
from flatout.probe.verify.printed_text import PrintedText


@pytest.fixture
def lines():
    found, seams = [], Seams()
    PrintedText(threading.get_ident(), found.append).install(seams)
    yield found
    seams.undo()


def test_lines_are_noted_whole_in_whatever_way_they_are_printed(lines):
    print("loss", 0.5, end="")
    assert lines == []
    print(" acc", 1)
    sys.stdout.write("a\nb\nc")
    handler = logging.StreamHandler(sys.stderr)
    handler.emit(logging.LogRecord("x", logging.INFO, "", 1, "epoch %d", (3,), None))
    print("", file=sys.stdout)
    assert lines == ["loss 0.5 acc 1", "a", "b", "epoch 3", "c"]


def test_progress_bars_and_empty_lines_are_left_out(lines):
    sys.stderr.write("\r 3/10\r 10/10\n")
    print()
    assert lines == []


def test_what_is_printed_behind_a_bar_is_a_line_and_the_bar_is_none(lines):
    bar = "\r 40%|####      | 4/10 [00:01<00:02,  3.1it/s, lr=[0.1], loss=0.4]"
    for _ in range(12):
        sys.stdout.write(bar)
    print("valid 0.25")
    sys.stdout.write(bar + "\n")
    sys.stdout.write("\rstep 3 loss 0.5")
    print()
    print("after 3")
    sys.stdout.write(bar + "\r" + " " * 90 + "\r")
    print("wiped 0.75")
    sys.stdout.write(bar + "\r" + " " * 90 + "\rstep 4")
    sys.stdout.write("\rstep 5\n")
    assert lines == ["valid 0.25", "after 3", "wiped 0.75"]


def test_other_threads_are_left_out(lines):
    thread = threading.Thread(target=print, args=("from elsewhere",))
    thread.start()
    thread.join()
    assert lines == []


def test_what_is_written_is_written_and_nothing_is_left_behind(capsys):
    before = dict(vars(sys.stdout)) if hasattr(sys.stdout, "__dict__") else {}
    found, seams = [], Seams()
    PrintedText(threading.get_ident(), found.append).install(seams)
    assert sys.stdout.write("four") == 4
    seams.undo()
    assert vars(sys.stdout) == before
    assert capsys.readouterr().out == "four"
    print("after")
    assert found == []
