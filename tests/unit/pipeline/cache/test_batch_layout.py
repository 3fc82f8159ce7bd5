"""What of a batch is not taken apart into rows."""

import numpy
import pytest
import torch

from flatout.pipeline.cache.batch_layout import layout_of, unknown_class


class Graph:
    """A batch of a library's own class."""


@pytest.mark.parametrize(
    ("batch", "name"),
    [
        (Graph(), "Graph"),
        ([torch.ones(2), {"graph": Graph()}], "Graph"),
        ((torch.ones(2), numpy.ones(2)), "ndarray"),
        ((torch.ones(3, 2), ["a", 1, None]), ""),
        ({"x": torch.ones(2)}, ""),
    ],
)
def test_the_first_class_that_is_not_known_is_named(batch, name):
    assert unknown_class(batch) == name
    assert not name or layout_of(batch, 2) is None
