"""Arguments and results as trees: what torch's own functions make of them, the plainest without walking them."""

from collections import namedtuple

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from flatout.ranks.trees import flattened, put_together, words_of

Pair = namedtuple("Pair", "one two")
x = torch.ones(2)
VALUES = [
    x,
    None,
    3,
    ((), {}),
    ((x,), {}),
    ((x, None, 2, 0.5, "mean", True), {}),
    ((x,) * 9, {}),
    ((x, [x]), {}),
    ((x,), {"mask": x}),
    ((Pair(x, x),), {}),
    (Pair(x, 1), {}),
    (x, {}),
    [x, {"a": (x, 1)}],
    Pair((x,), {}),
    torch.nn.Parameter(torch.ones(2)),
    ((torch.nn.Parameter(torch.ones(2)), torch.Size([2])), {}),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_leaves_and_structure_are_those_of_torch(value):
    leaves, structure = flattened(value)
    wanted, form = tree_flatten(value)
    assert structure == form and hash(words_of(structure)) == hash(repr(form))
    assert len(leaves) == len(wanted) and all(one is other for one, other in zip(leaves, wanted, strict=True))
    ours, theirs = put_together(leaves, structure), tree_unflatten(wanted, form)
    assert type(ours) is type(theirs)
    assert [id(one) for one in tree_flatten(ours)[0]] == [id(one) for one in leaves]
    assert tree_flatten(ours)[1] == tree_flatten(theirs)[1]


def test_plain_calls_of_one_form_have_the_same_structure_object():
    assert flattened(((x, 1), {}))[1] is flattened(((x, None), {}))[1]
    assert flattened(((x, 1), {}))[1] is not flattened(((x,), {}))[1]
    assert flattened(x)[1] is flattened(None)[1]


def test_structures_of_more_leaves_are_not_mistaken():
    _, structure = flattened(((x, x), {}))
    assert put_together([1, 2], structure) == ((1, 2), {})
    with pytest.raises(ValueError):
        put_together([1], structure)
