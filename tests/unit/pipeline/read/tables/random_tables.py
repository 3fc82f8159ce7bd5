"""Random tables of all types, and what pyarrow itself says their rows are."""

import math

import pyarrow as pa
import torch
from hypothesis import strategies as st

FLOATS = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}


def _floats(bits):
    return st.floats(width=bits, allow_nan=True, allow_infinity=True)


def _ints(kind):
    signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NUMBERS = [(kind, _ints(kind)) for kind in INTS] + [(kind, _floats(bits)) for bits, kind in FLOATS.items()]
NUMBERS.append((pa.bool_(), st.booleans()))
TEXT = st.text(max_size=6).filter(lambda text: "\0" not in text and text.isprintable())
PAIRS = st.dictionaries(TEXT, st.integers(0, 9), max_size=2).map(lambda pairs: [*pairs.items()])
COUNTED = [  # as what Arrow counts
    (pa.timestamp("us"), pa.int64()),
    (pa.timestamp("ns", "UTC"), pa.int64()),
    (pa.date32(), pa.int32()),
    (pa.time32("ms"), pa.int32()),
    (pa.time64("us"), pa.int64()),
    (pa.duration("ms"), pa.int64()),
]
FORMS = [
    *NUMBERS,
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal128(9, 2), st.decimals(-99999, 99999, places=2)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["red", "green", ""])),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(-5, 5)),
    (pa.list_(pa.string()), st.lists(TEXT, max_size=3)),
    (pa.list_(pa.list_(pa.int32())), st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2)),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.fixed_dictionaries({"a": st.integers(0, 9), "b": TEXT})),
    (
        pa.map_(pa.string(), pa.int32()),
        PAIRS,
    ),
    *((kind, st.integers(0, 80_000_000)) for kind, _ in COUNTED),
]


@st.composite
def columns(draw, num_rows):
    """Return a random column of a random type, with or without nulls."""
    kind, values = draw(st.sampled_from(FORMS))
    counted = dict(COUNTED).get(kind)
    listed = draw(st.sampled_from(["", "", "lists", "lists of one length", "fixed lists", "nulls within"]))
    if kind in [one for one, _ in NUMBERS] and listed:
        length = draw(st.integers(1, 3))
        inner = st.none() | values if listed == "nulls within" else values
        if listed in ("fixed lists", "lists of one length"):
            values = st.lists(inner, min_size=length, max_size=length)
        else:
            values = st.lists(inner, max_size=3)
        of_any_length = draw(st.sampled_from([pa.list_, pa.large_list]))
        kind = pa.list_(kind, length) if listed == "fixed lists" else of_any_length(kind)
    if draw(st.booleans()):
        values = st.none() | values
    made = draw(st.lists(values, min_size=num_rows, max_size=num_rows))
    if counted is not None:
        return pa.array(made, counted).cast(kind)
    return pa.array(made, kind)


@st.composite
def tables(draw, most_rows=12):
    """Return a table with a column `row` that numbers its rows, and some others."""
    num_rows = draw(st.integers(0, most_rows))
    others = draw(st.lists(columns(num_rows), max_size=4))
    named = {"row": pa.array(range(num_rows), pa.int64())} | {f"c{at}": column for at, column in enumerate(others)}
    return pa.table(named)


def rows_of(table):
    """Return the rows as pyarrow lists them, points in time as what Arrow counts."""
    counted = dict(COUNTED)
    for at, field in enumerate(table.schema):
        if field.type in counted:
            table = table.set_column(at, field.name, table.column(at).cast(counted[field.type]))
    return table.to_pylist()


def plain(value):
    """Return a value of a sample with tensors as Python has their numbers."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def same(one, other):
    """Return whether two values are one, NaN being itself, and 1 not 1.0 or True."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(other, "item"):  # half floats come as NumPy's
        other = other.item()
    if type(one) is not type(other):
        return False
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def same_rows(samples, rows):
    """Return whether samples are these rows of pyarrow's."""
    return same([{name: plain(value) for name, value in sample.items()} for sample in samples], rows)
