"""Records are gathered and written as torch does it column by column, with and without compiled code."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.native import records
from flatout.native.records import Field, Records, laid_out

DTYPES = [torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bool]
DTYPES += [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
FIELDS = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (1,), (3,), (2, 2), (16,), (0,)])), min_size=1, max_size=6
)


def numbers(dtype, shape, seed):
    made = torch.randint(0, 255, (*shape, dtype.itemsize), dtype=torch.uint8, generator=seed)
    return (made % 2 if dtype is torch.bool else made).view(dtype).view(shape)


def bits(tensor):
    return (
        tensor.dtype,
        tensor.shape,
        tensor.contiguous().view(-1).view(torch.uint8).tolist() if tensor.numel() else [],
    )


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(records, "compiled", None)
    elif records.compiled is None:
        pytest.skip("nothing is compiled here")


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=examples(80))
@given(FIELDS, st.integers(1, 200), st.integers(1, 90), st.integers(0, 2**30))
def test_batches_are_those_that_torch_gathers(compiled, kinds, number, size, seed):
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(records, "compiled", None)
        random = torch.Generator().manual_seed(seed)
        columns = [numbers(dtype, (number, *shape), random) for dtype, shape in kinds]
        fields, record_bytes = laid_out([Field(dtype, shape) for dtype, shape in kinds])
        assert all(field.start % field.dtype.itemsize == 0 for field in fields)
        made = Records(torch.zeros(number, record_bytes, dtype=torch.uint8), fields)
        cut = number // 2
        made.write(0, [column[:cut].contiguous() for column in columns])
        made.write(cut, [column[cut:].contiguous() for column in columns])
        places = torch.randint(0, number, (int(torch.randint(1, 300, (), generator=random)),), generator=random)

        def wanted(some):
            return [bits(column.view(torch.uint8).view(number, -1)[some].reshape(-1).view(column.dtype).view(len(some), *column.shape[1:])) if column.numel() else bits(column[:0].new_empty((len(some), *column.shape[1:]))) for column in columns]  # fmt: skip  # noqa: E501

        assert [bits(part) for part in made.gather(places)] == wanted(places)
        several = made.several(places, size)
        assert [[bits(part) for part in batch] for batch in several] == [wanted(some) for some in places.split(size)]
        assert [bits(part) for part in made.gather(places.to(torch.int32))] == wanted(places)


def test_each_batch_has_memory_of_its_own(way):
    fields, record_bytes = laid_out([Field(torch.int64, ()), Field(torch.float32, (2,))])
    made = Records(torch.zeros(9, record_bytes, dtype=torch.uint8), fields)
    first, second = made.gather(torch.arange(4)), made.gather(torch.arange(4))
    first[0].fill_(7)
    assert second[0].tolist() == [0] * 4 and made.gather(torch.arange(9))[0].tolist() == [0] * 9
    assert first[0].untyped_storage().data_ptr() != first[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("place", [9, -1, 2**40])
def test_there_is_no_record_beyond_the_last(way, place):
    fields, record_bytes = laid_out([Field(torch.int64, ())])
    made = Records(torch.zeros(9, record_bytes, dtype=torch.uint8), fields)
    with pytest.raises(IndexError):
        made.gather(torch.tensor([0, place]))
    with pytest.raises(IndexError):
        made.several(torch.tensor([0, place]), 1)


def test_fields_lie_within_their_record():
    for memory in (
        torch.zeros(3, 7, dtype=torch.uint8),
        torch.zeros(3, 8),
        torch.zeros(3, 16, dtype=torch.uint8)[:, ::2],
    ):
        with pytest.raises(ValueError, match="these are no records"):
            Records(memory, [Field(torch.int64, ())])
