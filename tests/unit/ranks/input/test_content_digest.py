"""A number for all that a data set is made of."""

import random
from typing import ClassVar

import numpy
import pytest
import torch

from flatout.ranks.input.content_digest import content_digest, digest_of_bytes

TOLD = 0


class Kept:
    kind: ClassVar = [1]

    def __init__(self):
        self.number, self.words = 3, {"a": [1, 2]}
        self.array, self.tensor = numpy.arange(4), torch.arange(4.0)
        self.rng, self.scale = random.Random(1), lambda x: x * TOLD

    def __getitem__(self, index):
        return self.scale(index) + TOLD


def told(value):
    global TOLD
    TOLD = value


CHANGES = {
    "attribute": lambda kept: setattr(kept, "number", 4),
    "entry": lambda kept: kept.words["a"].append(3),
    "order": lambda kept: setattr(kept, "words", {"b": 1, "a": [1, 2]}),
    "array": lambda kept: kept.array.__setitem__(0, 9),
    "tensor": lambda kept: kept.tensor.add_(1),
    "generator": lambda kept: kept.rng.random(),
    "class": lambda kept: kept.kind.append(2),
    "global": lambda kept: told(5),
}


def test_it_is_the_same_for_what_is_the_same():
    assert content_digest(Kept()) == content_digest(Kept()) is not None


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_shows(name):
    kept = Kept()
    before = content_digest(kept)
    try:
        CHANGES[name](kept)
        assert content_digest(kept) not in (None, before)
    finally:
        told(0)
        Kept.kind[:] = [1]


def test_what_has_no_content(tmp_path):
    kept = Kept()
    with (tmp_path / "there").open("w") as kept.file:
        assert content_digest(kept) is None


def test_bytes_are_kept_apart():
    assert digest_of_bytes(b"ab", b"c") != digest_of_bytes(b"a", b"bc")
    assert digest_of_bytes(b"ab") == digest_of_bytes(b"ab")
