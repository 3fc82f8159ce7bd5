"""Random generators that a data set holds: found, read and put back."""

import random

import numpy as np
import pytest
import torch

from flatout.watch.own_generators import generators_in, restore_states, states_of

KINDS = {
    "Python's": (lambda: random.Random(1), lambda generator: generator.random()),
    "torch's": (lambda: torch.Generator().manual_seed(1), lambda generator: torch.rand(1, generator=generator).item()),
    "NumPy's": (lambda: np.random.default_rng(1), lambda generator: generator.random()),
    "NumPy's older": (lambda: np.random.RandomState(1), lambda generator: generator.random_sample()),
}


class Rows:
    def __init__(self, *generators):
        self.inside = {"all": list(generators)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_that_is_put_back_draws_the_same_numbers_again(kind):
    make, draw = KINDS[kind]
    generators = [make()]
    before = states_of(generators)
    assert before == states_of(generators)
    drawn = [draw(generators[0]) for _ in range(3)]
    assert states_of(generators) != before
    restore_states(generators, before)
    assert states_of(generators) == before
    assert [draw(generators[0]) for _ in range(3)] == drawn


def test_generators_are_found_however_deep_they_are_held():
    generators = [make() for make, _ in KINDS.values()]
    assert {*map(id, generators)} <= {*map(id, generators_in(Rows(*generators)))}


def test_one_that_drew_does_not_hide_behind_one_that_did_not():
    generators = [random.Random(1), random.Random(2)]
    before = states_of(generators)
    generators[1].random()
    after = states_of(generators)
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
    with pytest.raises(ValueError, match="zip"):
        restore_states(generators, before[:1])
