"""Batch normalization over several ranks against torch's over the whole batch."""

import pytest
import torch
from tests.unit.ranks.in_threads import on_ranks

from flatout.ranks.batch_norm import _normalized
from flatout.ranks.rows import shares


@pytest.mark.parametrize("shape", [(7, 3), (5, 3, 4), (6, 3, 4, 4), (4, 3, 2, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_averages_and_gradients_are_those_of_one_process(shape, affine, dtype):
    x, upper = torch.randn(shape, dtype=dtype) * 3 + 5, torch.randn(shape, dtype=dtype)
    weight, bias = (torch.randn(3, dtype=dtype), torch.randn(3, dtype=dtype)) if affine else (None, None)
    state = torch.randn(3, dtype=dtype), torch.rand(3, dtype=dtype)

    def leaves():
        return [None if one is None else one.clone().requires_grad_() for one in (x, weight, bias)]

    whole, running = leaves(), [one.clone() for one in state]
    out = torch.nn.functional.batch_norm(whole[0], *running, *whole[1:], True, 0.3, 1e-5)
    out.backward(upper)
    sizes = shares(shape[0], 2)

    def run(group):
        own, kept = leaves(), [one.clone() for one in state]
        part, given = own[0].split(sizes)[group.rank], upper.split(sizes)[group.rank]
        found = _normalized(part, (*kept, 0.3), *own[1:], 1e-5, group)
        found.backward(given)
        return found.detach(), own[0].grad, kept, [one.grad for one in own[1:] if one is not None]

    results = on_ranks(2, run)
    torch.testing.assert_close(torch.cat([found for found, *_ in results]), out.detach())
    torch.testing.assert_close(sum(grad for _, grad, *_ in results), whole[0].grad, rtol=1e-4, atol=1e-5)
    for _, _, kept, _ in results:
        torch.testing.assert_close(kept, running)
    for number, of in enumerate(one for one in whole[1:] if one is not None):
        torch.testing.assert_close(results[0][3][number] + results[1][3][number], of.grad)


def test_one_value_for_each_channel_is_refused_as_torch_does():
    def run(group):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            _normalized(torch.randn(1, 3), (None, None, 0.1), None, None, 1e-5, group)
        return True

    assert on_ranks(1, run) == [True]


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_of_gradients_are_those_of_one_process(affine):
    x = torch.randn(6, 3, 4, dtype=torch.float64)
    weight, bias = torch.randn(2, 3, dtype=torch.float64) if affine else (None, None)

    def leaves():
        return [None if one is None else one.clone().requires_grad_() for one in (x, weight, bias)]

    def slopes(rows, call):
        (found,) = torch.autograd.grad((call(rows).tanh() ** 2).sum(), rows, create_graph=True)
        return (found.pow(2).sum(2).sqrt() - 1).pow(2).sum()

    whole = leaves()
    slopes(whole[0], lambda rows: torch.nn.functional.batch_norm(rows, None, None, *whole[1:], True)).backward()

    def run(group):
        own, sizes = leaves(), shares(6, 2)
        rows = own[0].split(sizes)[group.rank]
        slopes(rows, lambda part: _normalized(part, (None, None, 0.1), *own[1:], 1e-5, group)).backward()
        return [one.grad for one in own if one is not None and one.grad is not None]

    found = on_ranks(2, run)
    wanted = [one.grad for one in whole if one is not None and one.grad is not None]
    assert len(found[0]) == len(wanted) == (3 if affine else 1)
    for one, other, of in zip(*found, wanted, strict=True):
        torch.testing.assert_close(one + other, of)
