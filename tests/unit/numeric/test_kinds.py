"""Python's values as kinds, and back."""

import json

import numpy as np
import pytest

from flatout.numeric.comparison import same_bits
from flatout.numeric.kinds import Kind, kind_of, packed, restored


@pytest.mark.parametrize(
    "value",
    [1, -7, 1.5, True, np.uint8(3), np.int64(-3), np.float32(2.5), np.float64(2.5), np.bool_(True), (1, np.int16(2))],
)
def test_a_number_comes_back_as_what_it_was(value):
    kind = kind_of(value)
    assert same_bits(restored(packed(value, kind), kind), value)


@pytest.mark.parametrize(
    "value",
    [
        2**63, -(2**63), None, "x" * 1_000_001, [], [1, 2.0], [1, True], ["a"], [[1]], {}, {1}, np.uint64(3), 1j,
        np.zeros(3, dtype=">f8"), np.zeros(3, dtype=object), np.zeros(()), np.zeros(3, dtype="datetime64[s]"),
        np.zeros(3, dtype=np.float16), np.ma.zeros(3), (1, "a"), tuple(range(9)), type("Int", (int,), {})(3),
        np.frombuffer(b"x" * 17, dtype=np.uint8)[1:].view(np.float64),
    ],
)  # fmt: skip
def test_what_is_no_plain_number_array_or_list_of_numbers_has_no_kind(value):
    assert kind_of(value) is None


def test_arrays_are_told_apart_by_type_order_and_whether_they_may_be_written():
    plain = np.zeros((2, 3))
    frozen = plain.copy()
    frozen.flags.writeable = False
    kinds = [kind_of(each) for each in (plain, plain.T, plain[:, ::2], frozen, plain.astype("f4"), plain[0])]
    assert len({*kinds}) == 6
    assert [kind.layout for kind in kinds] == ["C", "F", "A", "c", "C", "C"]


def test_a_list_with_a_number_that_is_too_large_is_left_to_python():
    value = [1, 2**70]
    with pytest.raises(OverflowError):
        packed(value, kind_of(value))


@pytest.mark.parametrize("value", [1, "ab", [1.5], np.zeros((2, 2), "u1"), (1, 2.5)])
def test_a_kind_goes_through_text(value):
    kind = kind_of(value)
    assert Kind.of_plain(json.loads(json.dumps(kind.plain()))) == kind
