"""Exchanges among ranks, of flatout.ranks.group; processes are in tests/e2e/test_ranks_of_one_script.py."""

import pytest
import torch
from tests.unit.ranks.in_threads import on_ranks

from flatout.ranks.group import PeerFailed, Together


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int16, torch.complex64])
@pytest.mark.parametrize(("dim", "sizes"), [(0, (3, 3)), (0, (4, 3)), (1, (2, 1)), (1, (2, 2)), (2, (1, 2))])
def test_parts_are_joined_as_they_are(dtype, dim, sizes):
    shape = [3, 4, 5]
    shape[dim] = sum(sizes)
    whole = torch.randint(0, 2, shape).to(dtype)
    parts = whole.split(sizes, dim)
    for joined in on_ranks(2, lambda group: group.joined(parts[group.rank], dim, sizes)):
        assert torch.equal(joined, whole)
        assert joined._base is None  # the script may write to it


def test_images_with_channels_last_stay_so():
    whole = torch.randn(5, 3, 4, 4).to(memory_format=torch.channels_last)
    parts = whole.split((3, 2))
    for joined in on_ranks(2, lambda group: group.joined(parts[group.rank], 0, (3, 2))):
        assert torch.equal(joined, whole)
        assert joined.stride() == whole.stride()


def test_means_are_the_same_bits_on_all_ranks():
    values = torch.randn(3, 100)

    def mean(group):
        own = values[group.rank].clone()
        group.average(own)
        return own

    first, *others = on_ranks(3, mean)
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(first, values.mean(0))


def test_tensors_are_averaged_in_their_places():
    values = [torch.randn(2, 6), torch.randn(2, 1), torch.randn(2, 9)]

    def mean(group):
        own = [one[group.rank].clone() for one in values]
        group.average_each(own)
        return own

    for found in on_ranks(2, mean):
        assert all(torch.equal(one, of.sum(0) / 2) for one, of in zip(found, values, strict=True))


def test_numbers_of_all_ranks_and_whether_their_kinds_are_one():
    assert on_ranks(2, lambda group: group.numbers(Together.PATH, group.rank + 5, 9)) == [([5, 6], True)] * 2
    assert on_ranks(2, lambda group: group.numbers(Together.PATH, 5, group.rank)) == [([5, 5], False)] * 2
    assert on_ranks(1, lambda group: group.numbers(Together.PATH, 2**40, 2**32 - 1)) == [([2**40], True)]


def test_a_number_is_not_mistaken_for_another_exchange():
    def meet(group):
        group.parted = lambda texts: (_ for _ in ()).throw(RuntimeError(str(texts)))
        group.place = lambda: f"place {group.rank}"
        with pytest.raises(RuntimeError, match=r"place 0.*place 1"):
            group.numbers(Together.PATH, 1, 1) if group.rank else group.meet(Together.ROWS, 1)
        return True

    assert on_ranks(2, meet) == [True, True]


def test_ranks_at_different_exchanges_part_with_what_each_is_at():
    def meet(group):
        said = []
        group.parted = lambda texts: said.append(texts) or None
        group.place = lambda: f"place {group.rank}"
        group.meet(Together.CALL if group.rank else Together.ROWS)
        return said

    assert on_ranks(2, meet) == [[["place 0", "place 1"]]] * 2


def test_in_a_trial_another_rank_that_fails_is_an_exception():
    def meet(group):
        group.tried = True
        with pytest.raises(PeerFailed):
            group.meet(Together.FAILED if group.rank else Together.STATISTICS)
        return True

    assert on_ranks(2, meet) == [True, True]


def test_after_a_while_ranks_are_compared_where_it_is_asked_for_only():
    def count(group):
        group._compared = 10_000
        group.meet(Together.CALL, 1)
        before = group.num_bytes
        group.meet(Together.CALL, 1, always=True)
        return before, group.num_bytes > 0

    assert on_ranks(2, count) == [(0, True)] * 2


def test_texts_of_all_ranks_are_cut_to_a_length():
    texts = on_ranks(2, lambda group: group.texts("ä" * 1000 if group.rank else "short"))
    assert [text[0] for text in texts] == ["short"] * 2
    assert len(texts[0][1]) <= 400
