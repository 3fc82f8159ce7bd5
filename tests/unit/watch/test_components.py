"""What an object is made of: random generators are found wherever they are held, and the process's own are none."""

import random

import numpy as np
import pytest
import torch

from flatout.watch.components import is_generator, parts


class Own(random.Random):
    pass


@pytest.mark.parametrize(
    "made",
    [random.Random, Own, torch.Generator, np.random.default_rng, np.random.RandomState],
    ids=["random", "of one's own", "torch", "numpy", "numpy's older"],
)
def test_generators_are_found(made):
    assert is_generator(made())


@pytest.mark.parametrize("part", [random._inst, torch.default_generator, np.random.mtrand._rand, 3, "a", torch.ones(1)])
def test_those_of_the_process_and_other_things_are_none(part):
    assert not is_generator(part)


@pytest.mark.parametrize("module", ["somebodys.package", __name__])
def test_one_that_a_class_holds_is_found_whoever_wrote_the_class(monkeypatch, module):
    generator = random.Random()
    base = type("Base", (), {"rng": generator, "__module__": module})
    owner = type("Owner", (base,), {"__module__": __name__})()
    assert any(part is generator for part in parts(owner))
