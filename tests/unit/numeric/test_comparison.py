"""Results are the same where nobody can tell them apart."""

import numpy as np
import pytest

from flatout.numeric.comparison import same_bits


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (1, True), (0.0, -0.0), (1.5, np.float64(1.5)), (np.int64(1), np.int32(1)), ([1], (1,)),
        ([1], [1, 2]),
        (np.zeros(3), np.zeros(3, np.float32)), (np.zeros((2, 3)), np.zeros((3, 2))), (np.zeros(2), -np.zeros(2)),
        (np.zeros((3, 3)), np.zeros((3, 3), order="F")), (None, 0), ([0.0], [-0.0]),
    ],
)  # fmt: skip
def test_what_differs_in_type_sign_or_layout_differs(one, other):
    assert not same_bits(one, other)


@pytest.mark.parametrize(
    "value", [1, -0.0, float("nan"), None, (1, 2.5), [np.float32(2)], np.arange(6).reshape(2, 3).T]
)
def test_a_copy_is_the_same(value):
    assert same_bits(value, value.copy(order="K") if isinstance(value, np.ndarray) else value)
