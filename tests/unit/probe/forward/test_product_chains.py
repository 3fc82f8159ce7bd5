"""Which products of a step would take fewer multiplications from the right: flatout.probe.forward.product_chains."""

import pytest
import torch
from tests.unit.probe.forward.test_slow_forms import calls

from flatout.probe.forward.form_trials import timed

NODES = 300
WALK = torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(0)) / NODES
WALKS = WALK.repeat(2, 1, 1)


def power_in_a_loop(x):
    reach = WALK
    for _ in range(3):
        reach = reach @ WALK  # slow
    return reach @ x


def in_one_expression(x):
    return WALK @ WALK.t() @ x


def in_batches(x):
    return torch.matmul(WALKS @ WALKS, x)


def of_what_learns(x):
    weight = torch.ones(NODES, NODES, requires_grad=True)
    return WALK @ weight @ x


@pytest.mark.parametrize("body", [power_in_a_loop, in_one_expression, in_batches, of_what_learns])
def test_products_that_end_in_a_narrow_matrix_are_found(body):
    (call,) = calls(body, (NODES, 8))
    assert call.operation.startswith("the product 300x300 @ 300x300 @ ")
    assert call.operation.endswith("@ 300x8, from the left,")
    assert call.place.function == body.__name__
    assert any(call.trial.learns)
    measured = timed(call.trial)
    assert measured is not None, "both orders come to the same"
    assert measured.instead == "the same from the right"


def narrow_first(x):
    return x.t() @ WALK @ WALK


def wide_at_the_end(x):
    return WALK @ WALK @ WALKS[0]


def the_power_is_needed(x):
    squared = WALK @ WALK
    return squared @ x + squared.sum()


def from_the_right(x):
    return WALK @ (WALK @ x)


def small(x):
    return WALK[:8, :8] @ WALK[:8, :8] @ x[:8, :2]


@pytest.mark.parametrize("body", [narrow_first, wide_at_the_end, the_power_is_needed, from_the_right, small])
def test_other_products_are_left_alone(body):
    assert not [call for call in calls(body, (NODES, 8)) if "from the left" in call.operation]
