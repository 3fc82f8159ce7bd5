"""Whether results share memory or objects with something is told by ranges, wherever in them they begin.

Covers flatout.kept.lying_places.
"""

import numpy as np
import pytest
import torch

from flatout.kept.lying_places import Places, span_of

TENSOR, ARRAY, ROW = torch.arange(12.0), np.arange(12), [1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TENSOR, TENSOR.view(3, 4)),
        ({"a": [TENSOR[2:4]]}, (TENSOR[8:],)),
        (ARRAY, torch.from_numpy(ARRAY[3:])),
        (torch.from_numpy(ARRAY[:4]), torch.from_numpy(ARRAY[3:])),
        (TENSOR.numpy()[::-1], TENSOR[5:]),
        ((ROW,), {"rows": ROW}),
    ],
)
def test_what_lies_in_one_place_meets(one, other):
    assert Places(one).meets(Places(3, other))
    assert Places(other).meets(Places(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TENSOR, TENSOR.clone()),
        (ARRAY, torch.from_numpy(ARRAY.copy())),
        (torch.empty(0), torch.empty(0)),
        (np.empty((0, 3)), np.empty((3, 0))),
        ([1], [1]),
        ((), ()),
    ],
)
def test_what_lies_elsewhere_does_not(one, other):
    assert not Places(one).meets(Places(other))


def test_what_is_added_twice_is_told():
    places = Places()
    assert not places.add_span(span_of(TENSOR))
    assert places.add_span(span_of(TENSOR[4:]))
    assert not places.add_span(span_of(torch.empty(0)))
