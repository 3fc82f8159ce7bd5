"""Loops that change, copy, pickle, replace, freeze and compile models come out as plain under each fix of the step.

Fixes that promise every bit give every bit; others stay near in their losses and never end a training that goes on
without them. The modules are watched throughout, as `diagnose` does it.
"""

import functools
import gc
import math

import pytest
import torch
from tests.loops import LOOPS
from tests.unit.fixes.training import Process, same_bits

from flatout.fixes.core.catalog import find_fix
from flatout.schema.trial import Equivalence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of old kinds of normalization, of graphs made by hand
]

ARMS = (
    ("anomaly-off", "gc-control", "one-pass-optimizer"),
    ("bf16-autocast",),
    ("channels-last",),
    ("compiled-module",),
    ("denormals",),
    ("fused-optimizer",),
)
NEAR = {Equivalence.ROUNDING: 1e-4, Equivalence.PRECISION: 0.2}


@functools.cache
def plain(name):
    """Return what comes of a loop without anything of ours in the process.

    A scripted function runs otherwise once torch has seen it run, on some processors with other bits.
    """
    LOOPS[name]()
    found = LOOPS[name]()
    torch._dynamo.reset()
    return found


def numbers(value):
    """Yield every number in a nest of results."""
    if isinstance(value, torch.Tensor):
        yield from value.double().flatten().tolist()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)
    else:
        yield float(value)


def near(one, other, share):
    """Say whether two losses are near each other, as their class has it."""
    return math.isclose(one, other, rel_tol=share, abs_tol=share)


@pytest.fixture(autouse=True)
def one_thread():
    """Compute as under `make test`, where several processes test: on two threads a sum comes in another order.

    Adam then makes of 1e-7 in step 3 some 2e-4 in step 9, which is no fault of a fix.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def little_to_look_through(monkeypatch):
    """Set aside what was there before: models are looked for among all objects, 0.1 s a loop for torch's alone."""
    monkeypatch.setattr("flatout.fixes.gc_control._FROZEN", 1e9)  # it acts all the same
    gc.freeze()
    yield
    gc.freeze()  # what it gave back


@pytest.fixture
def quickly(monkeypatch):
    """Cut graphs in two as for inductor, and run them without generated code: seconds less for each."""
    from functorch.compile import min_cut_rematerialization_partition, nop
    from torch._dynamo.backends.common import aot_autograd

    cut = aot_autograd(fw_compiler=nop, partition_fn=min_cut_rematerialization_partition)
    monkeypatch.setattr("flatout.fixes.compiled_module._inductor", lambda graph, inputs, *, options: cut(graph, inputs))
    yield
    torch._dynamo.reset()


def test_there_are_forty_and_more():
    assert len(LOOPS) >= 40


@pytest.mark.parametrize("name", LOOPS)
def test_watched_a_loop_comes_out_to_the_last_bit(name):
    wanted = plain(name)
    with Process():
        assert same_bits(LOOPS[name](), wanted)
    assert same_bits(LOOPS[name](), wanted)


@pytest.mark.parametrize("fixes", ARMS, ids="+".join)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.few(13)
def test_under_a_fix_a_loop_comes_out_as_the_fix_promises(quickly, name, fixes):
    wanted, kind = plain(name), max((find_fix(fix).equivalence for fix in fixes), key=lambda kind: kind.rank)
    with Process(*((fix, {}) for fix in fixes)):
        found = LOOPS[name]()
    if kind is Equivalence.BITWISE:
        assert same_bits(found, wanted)
        return
    losses = list(numbers(found[0])), list(numbers(wanted[0]))
    assert len(losses[0]) == len(losses[1])
    assert all(near(one, other, NEAR[kind]) for one, other in zip(*losses, strict=True))
    if kind is Equivalence.ROUNDING:
        assert all(near(one, other, 1e-3) for one, other in zip(numbers(found[1:]), numbers(wanted[1:]), strict=True))
