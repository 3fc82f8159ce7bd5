"""A module that is left uncompiled is compared with its copy, compiled with its numbers held still."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from flatout.probe.model.uncompiled import UncompiledWatch
from flatout.schema.run import CompiledFunction, Frame


class Counts(nn.Module):
    """Reads a number that changes with each call."""

    def __init__(self):
        super().__init__()
        self.first, self.calls = nn.Linear(8, 8), 0

    def forward(self, x):
        self.calls += 1
        return self.first(x) * 0.99**self.calls


BEGINS = Counts.forward.__code__
PLACE = Frame(BEGINS.co_filename, BEGINS.co_firstlineno, "forward")
GIVEN_UP = CompiledFunction(place=PLACE, compilations=8, again=7, seconds=16.0, limit=8)
ANOTHER = replace(GIVEN_UP, place=Frame("loss.py", 1, "loss"))


class Compiler:
    """Makes nothing of what it is given."""

    def __init__(self):
        self.given = []

    def __call__(self, graph, inputs):
        self.given.append(graph)
        return graph.forward


@pytest.fixture
def compiler():
    yield Compiler()
    torch.compiler.reset()


def watched(module, compiler, calls=12):
    watch, compiled = UncompiledWatch(), torch.compile(module, backend=compiler)
    for _ in range(calls):
        x = torch.ones(4, 8)
        watch.around(compiled, compiled._orig_mod.forward)(x)
    return watch


def test_one_compilation_serves_all_passes_of_the_copy(compiler):
    """It is made as the script does it."""
    module = Counts()
    watch = watched(module, compiler)
    before = torch.get_rng_state()
    watch.measure([ANOTHER, GIVEN_UP])
    found = watch.facts()
    assert (found.model, found.place, found.n) == ("Counts", PLACE, 7)
    assert 0 < found.compiled_s < 1
    assert 0 < found.written_s < 1
    assert len(compiler.given) == 1
    assert module.calls == 12
    assert torch.equal(torch.get_rng_state(), before)
    assert module.first.weight.grad is None


@pytest.mark.parametrize(
    ("functions", "calls"),
    [
        ([], 12),
        ([GIVEN_UP], 11),
        ([ANOTHER], 12),
        ([replace(GIVEN_UP, compilations=5, again=4)], 12),
        ([replace(GIVEN_UP, refused=False)], 12),
        ([replace(GIVEN_UP, seconds=400.0)], 12),
        ([GIVEN_UP, replace(ANOTHER, compilations=1, again=0, seconds=120.0)], 12),
    ],
)
def test_nothing_is_compiled_where_nothing_is_left_uncompiled_or_it_takes_long(compiler, functions, calls):
    watch = watched(Counts(), compiler, calls)
    watch.measure(functions)
    assert watch.facts() is None
    assert not compiler.given


def test_what_was_never_compiled_is_not_looked_at():
    watch, module = UncompiledWatch(), Counts()
    for _ in range(12):
        watch.around(module, module.forward)(torch.ones(4, 8))
    watch.measure([GIVEN_UP])
    assert watch.facts() is None
