"""A forked process whose output is diverted prints nothing, sends nothing, and moves nobody's place in a file."""

import os
import socket
import sys

import pytest

from flatout.torch_loader.streamed.diverted_output import DivertedOutput

pytestmark = pytest.mark.slow


def in_a_fork(act):
    """Return what `act`, given the diverted output, returns in a fork: a number from 0 to 9."""
    process = os.fork()
    if not process:
        code = 99
        try:
            code = int(act(DivertedOutput(())))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def printed(output):
    print("from the fork")
    return output.written


def written_below(output):
    os.write(2, b"from the fork")
    return output.written


def forgotten(output):
    print("from the fork")
    output.forget()
    return output.written


def test_what_is_printed_is_seen_and_goes_nowhere(capfd):
    sys.stdout.flush()
    assert [in_a_fork(each) for each in (printed, written_below, forgotten)] == [1, 1, 0]
    assert "fork" not in "".join(capfd.readouterr())


def test_what_is_written_or_sent_by_open_handles_is_seen_and_goes_nowhere(tmp_path):
    ours, theirs = socket.socketpair()
    with (tmp_path / "log.txt").open("w") as log, ours, theirs:

        def act(output):
            log.write("from the fork")
            log.flush()
            found = output.written
            output.forget()
            os.write(theirs.fileno(), b"x")
            return found + 2 * output.written

        assert in_a_fork(act) == 3
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
    assert not (tmp_path / "log.txt").read_text()


def test_a_file_that_is_read_stays_where_it_was(tmp_path):
    (tmp_path / "a.txt").write_text("0123456789")
    with (tmp_path / "a.txt").open("rb", buffering=0) as file:
        assert file.read(2) == b"01"
        assert in_a_fork(lambda _: int(file.read(3).decode()) == 234) == 1
        assert file.read(3) == b"234"
