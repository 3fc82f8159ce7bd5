"""What is known of a class is asked once, and keeps no class alive."""

import gc
import io
import weakref

from flatout.watch.components import handle_of, is_generator
from flatout.watch.per_class_cache import PerClassCache


class NoHash(type):
    def __eq__(cls, other):
        return cls is other


class Unhashable(metaclass=NoHash):
    pass


class Proxy:
    def __init__(self, of):
        self.of = of

    __class__ = property(lambda self: type(self.of))


def test_a_class_is_asked_once():
    asked = []
    answer = PerClassCache(lambda kind: asked.append(kind) or kind.__name__)
    assert [answer(int), answer(str), answer(int), answer(Unhashable), answer(Unhashable)] == [
        "int", "str", "int", "Unhashable", "Unhashable",
    ]  # fmt: skip
    assert asked == [int, str, Unhashable]


def test_a_class_that_is_gone_is_forgotten():
    def looked_at():
        class Local:
            pass

        handle_of(Local())
        is_generator(Local())
        return weakref.ref(Local)

    gone = looked_at()
    gc.collect()
    assert gone() is None


def test_what_stands_for_an_open_file_is_one():
    assert handle_of(Proxy(io.StringIO())) == handle_of(io.StringIO()) == "an open file"
    assert handle_of(Proxy(3)) == handle_of(Unhashable()) == ""
