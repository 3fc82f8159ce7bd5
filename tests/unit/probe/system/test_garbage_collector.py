"""The clock of the garbage collector: every collection of one thread, and the line that asks for them."""

import gc
import threading
from pathlib import Path

import pytest

from flatout.probe.core.seams import Seams
from flatout.probe.system.garbage_collector import CollectorWatch


class Node:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def no_others():
    gc.disable()
    yield
    gc.enable()


def watched(work):
    watch, seams = CollectorWatch(lambda: True), Seams()
    watch.install(seams)
    watch.start()
    try:
        work()
    finally:
        watch.stop()
        seams.undo()
    return watch.facts()


def line_of_collect():
    return next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# ASKED"))


def asks(times):
    for _ in range(times):
        gc.collect()  # ASKED


@pytest.mark.slow
def test_what_one_line_asks_for_is_put_to_that_line():
    kept = [Node() for _ in range(20_000)]
    found = watched(lambda: asks(6))
    assert (found.collections, found.full, found.called) == (6, 6, 6)
    assert (found.place.file, found.place.line, found.place.function) == (__file__, line_of_collect(), "asks")
    assert 0 < found.longest_s <= found.seconds
    assert len(kept) == 20_000


def test_collections_that_nobody_asks_for_have_no_line():
    def allocate():
        kept = []
        for number in range(200):
            kept.append([[] for _ in range(200)])
            if number % 2:
                kept.append({number: [[] for _ in range(200)]})

    gc.enable()
    found = watched(allocate)
    assert found.collections > 20
    assert found.place is None


@pytest.mark.slow
def test_a_call_of_the_collector_by_another_name_is_known_for_one():
    assert watched(lambda: asks(3)).place.line == line_of_collect()

    def hidden(times):
        collect_now = gc.collect
        for _ in range(times):
            collect_now()

    assert watched(lambda: hidden(4)).called == 4


def test_what_a_library_asks_for_is_put_to_no_line(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "tidy_library.py"
    package.parent.mkdir()
    package.write_text("import gc\n\n\ndef tidy():\n    gc.collect()\n")
    monkeypatch.syspath_prepend(package.parent)
    import tidy_library

    found = watched(tidy_library.tidy)
    assert (found.place, found.called, found.full) == (None, 1, 1)


class Temporary:
    """What is gone as soon as it is made, as most tensors are."""


@pytest.fixture
def low_thresholds():
    before = gc.get_threshold()
    gc.freeze()
    gc.collect()  # of nothing: a full one comes when more lives since the last than a quarter of what lived then
    gc.set_threshold(50, 2, 2)
    gc.enable()
    yield
    gc.set_threshold(*before)


def test_objects_that_are_made_at_one_line_do_not_ask_for_the_collections_they_cause(low_thresholds):
    def make():
        return [[str(Temporary()), {1, 2}] for _ in range(6_000)]

    found = watched(make)
    assert found.full >= 5
    assert (found.place, found.called) == (None, 0)


@pytest.mark.slow
def test_another_threads_collections_are_not_counted():
    def elsewhere():
        thread = threading.Thread(target=asks, args=(5,))
        thread.start()
        thread.join()

    assert watched(elsewhere).collections == 0


def test_the_collector_is_left_as_it_was():
    before = list(gc.callbacks)
    watch = CollectorWatch(lambda: True)
    watch.start()
    watch.start()
    assert len(gc.callbacks) == len(before) + 1
    watch.stop()
    watch.stop()
    assert gc.callbacks == before


def test_what_is_collected_between_steps_is_no_part_of_them():
    inside = [False]
    watch, seams = CollectorWatch(lambda: inside[0], lambda: not inside[0]), Seams()
    watch.install(seams)
    watch.start()
    kept = [Node() for _ in range(20_000)]
    try:
        gc.collect()
        inside[0] = True
        gc.collect()
    finally:
        watch.stop()
        seams.undo()
    found = watch.facts()
    assert (found.collections, len(kept)) == (1, 20_000)
    assert 0 < found.between_asked_s == found.between_s
    assert found.between_at.file == __file__


@pytest.mark.slow
def test_two_lines_that_ask_are_counted_together():
    def both():
        for _ in range(4):
            gc.collect()
            gc.collect()  # the other line

    found = watched(both)
    assert found.called == found.full == 8
    assert (found.place.file, found.place.function.rpartition(".")[2]) == (__file__, "both")
