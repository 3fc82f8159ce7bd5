"""Operations of a forward pass on a device, by kind."""

import pytest

from flatout.rules import example
from flatout.rules.facts.operations import counted, share_of
from flatout.schema.run import Arithmetic, Causes, Environment

FLOPS = {"convolution float16 channels-first": 6e9, "convolution float32": 1e9, "product float32": 3e9}


@pytest.mark.parametrize(
    ("words", "share"),
    [((), 1.0), (("convolution",), 0.7), (("convolution", "float16"), 0.6), (("float32",), 0.4), (("float",), 0.0)],
)
def test_a_share_is_of_the_kinds_that_have_all_words(words, share):
    assert share_of(Arithmetic(flops=FLOPS), *words) == pytest.approx(share)


def test_of_nothing_there_is_no_share():
    assert share_of(Arithmetic(), "convolution") == 0.0


@pytest.mark.parametrize(
    ("flops", "kind", "known"), [(FLOPS, "cuda", True), ({}, "cuda", False), (FLOPS, "cpu", False)]
)
def test_only_what_was_counted_on_a_device_is_known(flops, kind, known):
    run = example(environment=Environment(device_kind=kind), causes=Causes(arithmetic=Arithmetic(flops=flops))).run
    assert (counted(run) is not None) is known


def test_without_a_deep_run_nothing_was_counted():
    assert counted(example(environment=Environment(device_kind="cuda")).run) is None
