"""The clock of the garbage collector: every collection of one thread, and the line that asks for them."""

import gc
import threading
from pathlib import Path

import pytest

from flatout.probe.collector import CollectorWatch


class Node:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def no_others():
    gc.disable()
    yield
    gc.enable()


def watched(work):
    watch = CollectorWatch(lambda: True)
    watch.start()
    try:
        work()
    finally:
        watch.stop()
    return watch.facts()


def line_of_collect():
    return next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# ASKED"))


def asks(times):
    for _ in range(times):
        gc.collect()  # ASKED


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


def test_a_few_collections_are_put_to_a_line_that_says_that_it_asks_for_them_and_to_no_other():
    assert watched(lambda: asks(3)).place.line == line_of_collect()

    def hidden(times, collect=gc.collect):
        for _ in range(times):
            collect_now = collect
            collect_now()

    assert watched(lambda: hidden(4)).place is None
    assert watched(lambda: hidden(5)).called == 5


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


def test_what_is_collected_between_steps_is_not_counted():
    inside = [False]
    watch = CollectorWatch(lambda: inside[0])
    watch.start()
    try:
        gc.collect()
        inside[0] = True
        gc.collect()
    finally:
        watch.stop()
    assert watch.facts().collections == 1
