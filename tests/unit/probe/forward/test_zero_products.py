"""Which products of a step are with a matrix that stays and is nearly all zeros.

Modules: flatout.probe.forward.zero_products
"""

import pytest
import torch
from tests.unit.probe.forward.test_slow_forms import calls

from flatout.probe.forward.form_trials import timed

NODES = 400


def ring(size=NODES):
    """Return the adjacency of a ring of nodes, each with both of its neighbours."""
    matrix = torch.zeros(size, size)
    at = torch.arange(size)
    matrix[at, (at + 1) % size] = 0.5
    matrix[at, at - 1] = 0.25
    return matrix


RING, FULL = ring(), torch.rand(NODES, NODES)
LEARNT = ring().requires_grad_()
HELD = {"batch": ring().unsqueeze(0)}


def on_the_left(x):
    return RING @ x


def on_the_right(x):
    return x.mT @ RING


def transposed(x):
    return RING.t() @ x


def by_letters(x):
    return torch.einsum("vf,vw->wf", x, RING)


def as_a_batch_of_one(x):
    return torch.bmm(HELD["batch"], x.unsqueeze(0))


def with_a_bias(x):
    return torch.addmm(torch.ones(64), RING, x)


@pytest.mark.parametrize(
    "body",
    [on_the_left, on_the_right, transposed, by_letters, as_a_batch_of_one, with_a_bias],
    ids=lambda b: b.__name__,
)
def test_products_with_a_matrix_of_zeros_are_found_on_either_side(body):
    (call,) = calls(body, (NODES, 64))
    assert "400 x 400 matrix, 99.5% of which are zeros" in call.operation
    assert call.place.function == body.__name__
    measured = timed(call.trial)
    assert measured is not None, "both forms come to the same"
    assert "to_sparse_csr" in measured.instead


def filled(x):
    return FULL @ x


def learnt(x):
    return LEARNT @ x


def made_in_the_step(x):
    return ring() @ x


def made_of_the_batch(x):
    return (x @ x.mT).gt(1e9).float() @ x


def small(x):
    return RING[:8, :8] @ x[:8]


@pytest.mark.parametrize("body", [filled, learnt, made_in_the_step, made_of_the_batch, small], ids=lambda b: b.__name__)
def test_other_products_are_left_alone(body):
    assert not calls(body, (NODES, 64))


def test_both_forms_have_the_same_gradients():
    (call,) = calls(on_the_right, (NODES, 64))
    given = [torch.rand(shape) for shape in call.trial.shapes]
    grads = []
    for form in (call.trial.written, call.trial.others[0][1]):
        leaf = given[0].clone().requires_grad_()
        form(leaf).square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)
