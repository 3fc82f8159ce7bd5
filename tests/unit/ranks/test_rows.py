"""Rows by rank, ways to cut a call, and how results are joined: pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.ranks.rows import RowPlan, candidates, joined_dim, shares


@given(st.integers(0, 1000), st.integers(1, 64))
def test_shares_hold_all_rows_and_are_as_equal_as_they_can_be(rows, ranks):
    found = shares(rows, ranks)
    assert sum(found) == rows
    assert len(found) == ranks
    assert max(found) - min(found) <= 1
    assert list(found) == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("shapes", "first"),
    [
        ([(8, 3)], (0,)),
        ([(8, 3), (8,)], (0, 0)),
        ([(8, 3), None, (3,), (8, 8)], (0, None, None, 0)),
        ([(8, 5, 3), (2, 8, 4)], (0, 1)),  # states of a recurrent net beside its batch
        ([(), (8, 3)], (None, 0)),
    ],
)
def test_the_first_dimension_of_the_first_tensor_is_tried_first(shapes, first):
    assert candidates(shapes)[0].dims == first


def test_a_second_dimension_is_tried_where_there_are_three():
    assert RowPlan((1, 1)) in candidates([(6, 10, 4), (2, 10, 12)])
    assert candidates([(6, 10)]) == [RowPlan((0,))]


def test_a_call_without_a_batch_has_no_way():
    assert candidates([None, (), (1, 5)]) == []
    assert candidates([]) == []


@pytest.mark.parametrize(
    ("dims", "shapes", "rows"),
    [
        ((0, None), [(7, 2), (3,)], 7),
        ((0, 1), [(7, 2), (3, 7)], 7),
        ((0, 1), [(7, 2), (3, 6)], 0),
        ((0, 0), [(7, 2), None], 0),
        ((1,), [(7,)], 0),
        ((0,), [(7,), (7,)], 0),
    ],
)
def test_rows_of_a_later_call_are_those_that_all_its_tensors_have(dims, shapes, rows):
    assert RowPlan(dims).rows(shapes) == rows


@pytest.mark.parametrize(
    ("whole", "part", "dim"),
    [((8, 3), (4, 3), 0), ((5, 8, 3), (5, 4, 3), 1), ((40, 3), (20, 3), 0), ((3,), (3,), None), ((), (), None)],
)
def test_parts_are_joined_along_the_dimension_that_goes_with_the_rows(whole, part, dim):
    assert joined_dim(whole, part, 8, 4) == dim


@pytest.mark.parametrize(("whole", "part"), [((8, 3), (4,)), ((8, 8), (4, 4)), ((8, 3), (5, 3)), ((9, 3), (4, 3))])
def test_parts_that_make_no_whole_are_refused(whole, part):
    with pytest.raises(ValueError, match="of 8 rows"):
        joined_dim(whole, part, 8, 4)
