"""A switch in memory that is shared with processes forked later."""

import os

import pytest

from flatout.fixes.core.shared_switch import SharedSwitch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked here")


def in_a_fork(act):
    """Run `act` in a process forked from here and return what it answers: true or false."""
    child = os.fork()
    if not child:
        try:
            os._exit(int(bool(act())))
        finally:
            os._exit(2)
    return {0: False, 1: True}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def test_a_process_forked_later_follows_the_switch():
    reach = SharedSwitch()
    assert not in_a_fork(lambda: reach.on)
    reach.on = True
    assert in_a_fork(lambda: reach.on)
    switched, said = os.pipe(), os.pipe()

    def waits():
        os.write(said[1], b"%d" % reach.on)
        os.read(switched[0], 1)
        return reach.on

    child = os.fork()
    if not child:
        try:
            os._exit(int(waits()))
        finally:
            os._exit(2)
    os.close(said[1])
    assert os.read(said[0], 1) == b"1"
    reach.on = False
    os.write(switched[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_knows_where_it_was_made_and_what_others_have_done():
    reach = SharedSwitch()
    assert not reach.elsewhere
    assert in_a_fork(lambda: reach.elsewhere)
    assert reach.hits() == 0
    for number in range(3):
        in_a_fork(lambda number=number: [reach.hit() for _ in range(number)])
    assert reach.hits() == 3
