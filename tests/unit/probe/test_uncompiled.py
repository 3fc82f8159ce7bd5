"""A module that is left uncompiled is compared with its copy, compiled with its numbers held still."""

import pytest
import torch
from torch import nn

from flatout.probe import uncompiled
from flatout.probe.uncompiled import UncompiledWatch
from flatout.schema.run import CompiledFunction, Frame

GIVEN_UP = CompiledFunction(place=Frame("model.py", 1, "forward"), compilations=8, again=7, seconds=16.0, limit=8)


class Counts(nn.Module):
    """Reads a number that changes with each call."""

    def __init__(self):
        super().__init__()
        self.first, self.calls = nn.Linear(8, 8), 0

    def forward(self, x):
        self.calls += 1
        return self.first(x) * 0.99**self.calls


@pytest.fixture
def compilations(monkeypatch):
    """Dynamo without a compiler behind it, and what it was given to compile."""
    made = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    monkeypatch.setattr(uncompiled, "_compile", lambda forward: torch.compile(forward, backend=backend))
    yield made
    torch.compiler.reset()


def watched(module, calls=12, **options):
    watch, compiled = UncompiledWatch(), torch.compile(module, backend="eager", **options)
    for _ in range(calls):
        x = torch.ones(4, 8)
        watch.around(compiled, compiled._orig_mod.forward)(x)
    return watch


def test_one_compilation_serves_all_passes_of_the_copy(compilations):
    module = Counts()
    watch = watched(module)
    before = torch.get_rng_state()
    watch.measure([GIVEN_UP])
    found = watch.facts()
    assert (found.model, found.n) == ("Counts", 7)
    assert 0 < found.compiled_s < 1
    assert 0 < found.written_s < 1
    assert len(compilations) == 1
    assert module.calls == 12
    assert torch.equal(torch.get_rng_state(), before)
    assert module.first.weight.grad is None


@pytest.mark.parametrize(
    ("functions", "calls"),
    [
        ([], 12),
        ([GIVEN_UP], 11),
        ([CompiledFunction(place=GIVEN_UP.place, compilations=5, again=4, limit=8)], 12),
        ([CompiledFunction(place=GIVEN_UP.place, compilations=8, again=7, seconds=400.0, limit=8)], 12),
    ],
)
def test_nothing_is_compiled_where_nothing_is_left_uncompiled_or_it_takes_long(compilations, functions, calls):
    watch = watched(Counts(), calls=calls)
    watch.measure(functions)
    assert watch.facts() is None
    assert not compilations


def test_what_was_never_compiled_is_not_looked_at(compilations):
    watch, module = UncompiledWatch(), Counts()
    for _ in range(12):
        watch.around(module, module.forward)(torch.ones(4, 8))
    watch.measure([GIVEN_UP])
    assert watch.facts() is None
