"""Who asks for the garbage collector: told while `gc.collect` runs in the thread that is watched."""

import gc
import threading

import pytest

from flatout.probe.core.seams import Seams
from flatout.probe.system.gc_calls import CollectCalls


@pytest.fixture
def calls():
    made, seams = CollectCalls(), Seams()
    made.install(seams)
    yield made
    seams.undo()


@pytest.fixture
def seen(calls):
    """What is known while the collector runs."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append((calls.asked, calls.by_user))

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_a_call_of_the_users_is_told_from_one_of_a_library(calls, seen):
    calls.thread = threading.get_ident()
    gc.collect(0)
    exec(compile("import gc\ngc.collect(0)", threading.__file__, "exec"))
    assert seen[-2:] == [(True, True), (True, False)]
    assert (calls.asked, calls.by_user) == (False, False)


def test_another_thread_is_not_the_trainings(calls, seen):
    gc.collect(0)
    assert seen[-1] == (False, False)


def test_an_error_ends_the_call(calls, seen):
    calls.thread = threading.get_ident()
    with pytest.raises(ValueError, match="invalid generation"):
        gc.collect(99)
    assert (calls.asked, calls.by_user) == (False, False)


def test_the_result_is_that_of_the_collector(calls):
    calls.thread = threading.get_ident()
    gc.collect(0)
    circle = []
    circle.append(circle)
    del circle
    assert gc.collect(0) >= 1
