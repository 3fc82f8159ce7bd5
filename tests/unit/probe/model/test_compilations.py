"""What is read from Dynamo's own records: breaks with their line, functions compiled again with the reason."""

import sys
import time
from pathlib import Path

import pytest
import torch

from flatout.probe.model.compilations import compiled_functions, graph_breaks


@pytest.fixture(autouse=True)
def forgotten():
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.graph_break_reasons.clear()
    dynamo.clear_compilation_metrics()
    yield
    torch._dynamo.reset()
    dynamo.graph_break_reasons.clear()


def line_of(mark):
    return next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if f"# {mark}" in text)


def broken(x):
    x = x + 1
    torch._dynamo.graph_break()  # BREAK
    return x * 2


def scaled(x, factor):  # SCALED
    return x * factor


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # CALLS
        return x * self.calls


@pytest.mark.slow
def test_a_break_has_its_line():
    torch.compile(broken, backend="eager")(torch.ones(3))
    (found,) = graph_breaks()
    assert (found.place.file, found.place.line, found.place.function) == (__file__, line_of("BREAK"), "broken")
    assert found.reason
    assert found.count == 1


def test_a_function_that_is_compiled_again_and_again():
    began = time.time()
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for size in range(2, 7):
        compiled(torch.ones(size), 2.0)
    (found,) = compiled_functions(began)
    assert (found.place.file, found.place.line, found.place.function) == (__file__, line_of("SCALED"), "scaled")
    assert (found.compilations, found.again) == (5, 4)
    assert 0 < found.again_s < found.seconds
    assert found.limit >= 5
    assert found.reason.startswith("tensor 'x' size mismatch")


@pytest.mark.parametrize(("more", "given_up"), [(0, False), (1, True)])
@pytest.mark.slow
def test_as_many_variants_as_may_be_are_not_given_up(more, given_up):
    limit = torch._dynamo.config.recompile_limit
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for size in range(2, 2 + limit + more):
        compiled(torch.ones(size), 2.0)
    (found,) = compiled_functions(0.0)
    assert (found.compilations, found.refused, found.is_given_up) == (limit, given_up, given_up)


def test_the_line_that_reads_what_changes_is_named():
    compiled = torch.compile(Counting(), backend="eager")
    for _ in range(3):
        compiled(torch.ones(3))
    (found,) = compiled_functions(0.0)
    assert (found.changed_at.file, found.changed_at.line) == (__file__, line_of("CALLS"))
    assert found.reason == "self.calls == 1"


def test_variants_made_before_training_are_not_made_again():
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for size in range(2, 7):
        compiled(torch.ones(size), 2.0)
    (found,) = compiled_functions(time.time() + 60)
    assert (found.compilations, found.again, found.again_s) == (5, 0, 0.0)


def test_a_process_that_compiles_nothing_has_nothing_to_tell(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert graph_breaks() == ()
    assert compiled_functions(0.0) == ()
