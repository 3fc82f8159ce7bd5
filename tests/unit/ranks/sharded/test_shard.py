"""Shares of a parameter, what is left of it at rest, and what keeps it whole."""

import weakref

import pytest
import torch

from flatout.native.holders import can_count_holders
from flatout.ranks.sharded.resting import as_it_is
from flatout.ranks.sharded.shard import Place, Shard, absent, is_dense


def shared_out(whole, size):
    """Return the parameter and the shares of all ranks."""
    parameter = torch.nn.Parameter(whole)
    return parameter, [Shard(parameter, Place(rank, size), lambda one: None) for rank in range(size)]


@pytest.mark.parametrize("shape", [(5, 7), (64,), (3, 4, 5, 2)])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_shares_make_the_whole_again(shape, size):
    whole = torch.randn(shape)
    if len(shape) == 4:
        whole = whole.to(memory_format=torch.channels_last)
    parameter, shards = shared_out(whole.clone(memory_format=torch.preserve_format), size)
    flat = torch.cat([one.part.detach() for one in shards])[: whole.numel()]
    assert len({len(one.part) for one in shards}) == 1
    again = shards[0].shaped(flat)
    assert torch.equal(again, whole) and again.stride() == parameter.stride()


def test_a_parameter_at_rest_has_its_shape_and_no_values():
    parameter, (shard,) = shared_out(torch.ones(4, 6), 1)
    assert shard.release()
    assert not shard.whole and tuple(parameter.shape) == (4, 6)
    with as_it_is():
        assert parameter.untyped_storage().nbytes() == 4
    shard.put(shard.part.detach().clone())
    shard.show(True)
    assert torch.equal(parameter, torch.ones(4, 6))


def test_what_others_hold_stays_whole_and_is_written_to():
    parameter, (shard,) = shared_out(torch.ones(4, 6), 1)
    view = parameter.data[2]
    assert not shard.release() and shard.whole
    view.fill_(3.0)
    shard.settle()
    assert shard.part[12:18].tolist() == [3.0] * 6
    shard.put(torch.full((24,), 5.0))
    assert view.tolist() == [5.0] * 6
    del view
    assert shard.release()


def test_memory_that_only_an_array_holds_is_held():
    parameter, (shard,) = shared_out(torch.ones(4, 6), 1)
    array = parameter.detach().numpy()
    assert not shard.release()
    del array
    assert shard.release()


def test_what_the_script_puts_in_its_place_is_taken():
    parameter, (shard,) = shared_out(torch.ones(4, 6), 1)
    parameter.data = torch.full((8, 3), 2.0, dtype=torch.float64)
    shard.settle()
    assert shard.shape == (8, 3) and shard.part.dtype is torch.float64 and shard.part.sum() == 48


def test_the_end_of_a_parameter_is_told():
    gone = []
    parameter = torch.nn.Parameter(torch.ones(4, 6))
    shard = Shard(parameter, Place(0, 1), gone.append)
    del parameter
    assert gone == [shard.ref] and isinstance(shard.ref, weakref.ref)


def test_dense_and_absent_tensors():
    assert can_count_holders()
    assert is_dense(torch.ones(3, 4)) and is_dense(torch.ones(3, 4).t()) and is_dense(torch.ones(1, 5)[:, :])
    assert not is_dense(torch.ones(3, 4)[:, ::2]) and not is_dense(torch.ones(3, 1).expand(3, 4))
    assert torch.isnan(absent(torch.ones(3, 4))).all()
