"""Whether a trace of Dynamo may have begun in this process."""

import sys
import types

import pytest

from flatout.probe.core import tracing
from flatout.probe.core.seams import Seams
from flatout.probe.core.tracing import Tracing


class Translator:
    def __init__(self, frame):
        self.frame = frame


@pytest.fixture
def dynamo(monkeypatch):
    """A stand-in for the module in which Dynamo traces."""
    module = types.ModuleType("tracer_of_dynamo")
    module.InstructionTranslator = type("InstructionTranslator", (Translator,), {"__init__": Translator.__init__})
    monkeypatch.setitem(sys.modules, "tracer_of_dynamo", module)
    monkeypatch.setitem(sys.modules, "torch._dynamo.symbolic_convert", module)
    monkeypatch.setattr(tracing, "_TRACER", "tracer_of_dynamo:InstructionTranslator.__init__")
    return module.InstructionTranslator


@pytest.fixture
def seams():
    made = Seams()
    yield made
    made.undo()


def test_before_dynamo_is_there_a_trace_is_possible(monkeypatch, seams):
    monkeypatch.delitem(sys.modules, "torch._dynamo.symbolic_convert", raising=False)
    known = Tracing()
    known.watch(seams)
    assert known.possible


def test_once_it_is_watched_none_is_until_one_begins(dynamo, seams):
    known = Tracing()
    known.watch(seams)
    assert not known.possible
    assert dynamo("frame").frame == "frame"
    assert known.possible
    known.watch(seams)  # it stays so
    assert known.possible
    assert sum(seams.hits().values()) == 1


def test_where_its_tracer_is_another_nothing_is_known(dynamo, seams, monkeypatch):
    monkeypatch.setattr(tracing, "_TRACER", "tracer_of_dynamo:Gone.__init__")
    known = Tracing()
    known.watch(seams)
    assert known.possible


def test_when_the_seams_are_undone_nothing_is_known(dynamo, seams):
    known = Tracing()
    known.watch(seams)
    known.leave()
    assert known.possible
