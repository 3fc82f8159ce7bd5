"""The columns that a condition reads are those that it names, and no others whose names occur in its text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.pipeline.read.tables.condition_columns import columns_of

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

NAMES = ["id", "valid", "is_valid", "a.b", "a", "b c", "größe", "(x > 3)", 'qu"ote', "FieldRef.Name(id)", "_"]
SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in NAMES])


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), st.booleans())
def test_columns_are_those_that_are_named(names, negated):
    condition = pc.field(names[0]) > 3
    for name in names[1:]:
        condition = condition & ((pc.field(name) == 1) | pc.field(name).is_null())
    assert set(columns_of(~condition if negated else condition, SCHEMA)) == set(names)


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        (None, []),
        (pc.field("nothing") > 3, []),
        (pc.field("id") > "text", []),
        (pc.field("is_valid") == pc.scalar("id").cast(pa.int64(), safe=False).is_null(), []),
        (pc.scalar(True), []),
        (pc.field(0) > 3, NAMES),
        (pc.field("valid").isin([1, 2]), ["valid"]),
    ],
    ids=["none", "unknown", "of another type", "without a meaning", "constant", "by place", "is in"],
)
def test_what_else_a_condition_may_be(condition, read):
    assert columns_of(condition, SCHEMA) == read


def test_fields_within_a_column_are_of_that_column():
    schema = pa.schema([("person", pa.struct([("age", pa.int64()), ("id", pa.int64())])), ("age", pa.int64())])
    assert columns_of(pc.field("person", "age") > 3, schema) == ["person"]
