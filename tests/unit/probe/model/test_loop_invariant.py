"""Which operations of a step are known to give what they gave a step before."""

import gc
from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flatout.probe.model.loop_invariant import LoopInvariantWatch

EDGES = (torch.rand(60, 60, generator=torch.Generator().manual_seed(0)) < 0.1).float()
NODES = torch.rand(60, 5, generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    """A layer whose forward pass is a function of it, a batch, and what stays."""

    def __init__(self, body):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(5, 4))
        self.register_buffer("mean", torch.zeros(4))
        self.body = body
        self.kept = None

    def forward(self, x):
        return self.body(self, x)


def watched(body, batch=lambda: NODES, steps=7, possible=False, penalty=None):
    """Return the watch over the training of a layer."""
    torch.manual_seed(0)
    log = SimpleNamespace(
        events=SimpleNamespace(fetch_listeners=[]),
        tracing=SimpleNamespace(possible=possible),
        thread=get_ident(),
        fetching=False,
    )
    layer, watch = Layer(body), LoopInvariantWatch(log)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    watch.install(None)
    for _ in range(steps):
        x = batch()
        loss = watch.around(layer, layer)(x).square().mean()
        if penalty is not None:
            loss = loss + penalty(layer)
        watch.backward(loss)
        loss.backward()
        optimizer.step()
        gc.collect()
        watch.step()
    watch.stop()
    assert torch._C._len_torch_dispatch_stack() == 0
    return watch


def found(body, batch, penalty=None):
    """Return every operation that was found, not only the costliest of each line."""
    spent = watched(body, batch, penalty=penalty)._second._costs._spent.values()
    return {name for costs in spent for name, taken in costs.items() if taken}


def fresh():
    return torch.rand(60, 5)


def edges_found_again(layer, x):
    rows, columns = EDGES.nonzero().t()
    return torch.zeros(60, 4).index_add(0, rows, (x @ layer.weight)[columns])


def a_mask_made_again(layer, x):
    mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
    y = x @ layer.weight
    return torch.softmax(y @ y.t() + mask, 1) @ y


def what_is_kept_is_normalized_again(layer, x):
    if layer.kept is None:
        layer.kept = EDGES + torch.eye(60)
    return (layer.kept / layer.kept.sum(1, keepdim=True)) @ x @ layer.weight


def a_table_filled_again(layer, x):
    table = torch.zeros(60, 4)
    table[:, 0::2] = torch.sin(torch.arange(60.0))[:, None]
    table[:, 1::2] = torch.cos(torch.arange(60.0))[:, None]
    return x @ layer.weight + table


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        (edges_found_again, {"nonzero"}),
        (a_mask_made_again, {"full", "triu"}),
        (what_is_kept_is_normalized_again, {"sum", "div"}),
        (a_table_filled_again, {"sin", "cos"}),
    ],
)
@pytest.mark.parametrize("batch", [fresh, lambda: NODES])
@pytest.mark.few(1)
@pytest.mark.slow
def test_what_is_computed_again_of_what_stays_is_found(body, operations, batch):
    names = found(body, batch)
    assert operations <= names
    assert not names & {"_softmax", "index_add", "pow"}, "what depends on weights"


def a_new_tensor_each_time(layer, x):
    return (x + 1).nonzero().sum() + x @ layer.weight


def random_numbers(layer, x):
    noise = torch.rand(60, 60).exp()
    return noise @ nn.functional.dropout(x @ layer.weight, 0.5)


def a_running_mean(layer, x):
    layer.mean.mul_(0.9).add_(x.mean() * 0.1)
    return x @ layer.weight - layer.mean.exp()


def written_through_a_view(layer, x):
    table = torch.zeros(60, 4)
    table[:5] = x[:5, :4]
    return x @ layer.weight + table.exp()


def a_state_that_goes_on(layer, x):
    state = torch.zeros(60, 4) if layer.kept is None else layer.kept
    layer.kept = torch.tanh(state.cos() + (x @ layer.weight).detach())
    return x @ layer.weight + layer.kept


def memory_as_it_is(layer, x):
    made = torch.empty(60, 4)
    made.copy_(x[:, :4])
    return x @ layer.weight + made.cos()


@pytest.mark.parametrize(
    "body",
    [a_new_tensor_each_time, random_numbers, a_running_mean, written_through_a_view, a_state_that_goes_on,
     memory_as_it_is],
)  # fmt: skip
@pytest.mark.few(1)
@pytest.mark.slow
def test_what_changes_is_not(body):
    wrong = {"nonzero", "exp", "cos", "tanh", "mul", "mul_", "add_", "mm", "mean", "bernoulli_", "rand", "copy_"}
    assert not found(body, fresh) & wrong


@pytest.mark.full
def test_a_product_of_what_stays_is_found_where_the_batch_stays_too():
    def body(layer, x):
        return x @ EDGES[:5, :4] + x @ layer.weight

    assert "mm" in found(body, lambda: NODES)
    assert "mm" not in found(body, fresh)


@pytest.mark.parametrize(("steps", "possible"), [(4, False), (7, True)])
@pytest.mark.few(1)
@pytest.mark.slow
def test_nothing_is_said_of_one_pass_or_of_what_is_compiled(steps, possible):
    assert watched(edges_found_again, steps=steps, possible=possible).facts() == ()


@pytest.mark.slow
def test_lines_are_the_users_and_the_costliest_comes_first():
    facts = watched(edges_found_again).facts()
    assert [each.seconds for each in facts] == sorted((each.seconds for each in facts), reverse=True)
    assert facts[0].operation == "nonzero"
    assert (facts[0].place.file, facts[0].place.function) == (__file__, "edges_found_again")
    assert all(0 < each.seconds <= each.whole_s for each in facts)


GRID = torch.linspace(0, 1, 40, dtype=torch.float64)


def plain(layer, x):
    return x @ layer.weight


def a_prior_on_a_fixed_grid(layer):
    covariance = torch.exp(-(GRID[:, None] - GRID).square()) + 0.1 * torch.eye(40)
    return torch.linalg.slogdet(covariance)[1].float() + layer.weight.square().sum()


class Roughness(nn.Module):
    """A penalty without parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.arange(5.0))

    def forward(self, weight):
        operator = torch.diag(self.steps.cos()).matrix_exp()
        return (operator @ weight).square().sum()


@pytest.mark.parametrize(
    ("penalty", "operations"),
    [
        (a_prior_on_a_fixed_grid, {"exp", "_linalg_slogdet"}),
        (lambda layer: ROUGHNESS(layer.weight), {"cos", "linalg_matrix_exp"}),
    ],
)
@pytest.mark.few(1)
@pytest.mark.slow
def test_what_is_computed_again_in_the_loss_is_found_and_known_to_be_outside_of_the_model(penalty, operations):
    assert operations <= found(plain, fresh, penalty)
    facts = watched(plain, fresh, penalty=penalty).facts()
    assert facts[0].outside
    assert 0 < facts[0].seconds <= facts[0].whole_s


ROUGHNESS = Roughness()


def a_penalty_on_weights(layer):
    return layer.weight.exp().sum()


def a_penalty_on_what_the_script_updates_by_hand(layer):
    layer.kept = torch.zeros(5, 4) if layer.kept is None else layer.kept
    layer.kept += layer.weight.detach()
    return layer.kept.exp().sum()


def a_mark_for_a_profiler(layer):
    with torch.profiler.record_function("penalty"):
        return layer.weight.abs().sum()


def a_sum_that_starts_at_zero(layer):
    total = torch.zeros(200, 200)
    total += layer.weight.sum()
    return total.sum()


@pytest.mark.parametrize(
    "penalty", [a_penalty_on_weights, a_penalty_on_what_the_script_updates_by_hand, a_sum_that_starts_at_zero]
)
@pytest.mark.few(1)
@pytest.mark.slow
def test_what_changes_in_the_loss_is_not(penalty):
    assert not found(plain, fresh, penalty) & {"exp", "sum", "add_", "zeros"}


@pytest.mark.slow
def test_marks_for_a_profiler_are_no_work():
    assert not {name for name in found(plain, fresh, a_mark_for_a_profiler) if "record_function" in name}


@pytest.mark.slow
def test_a_parameter_that_is_changed_past_the_optimizer_is_no_constant():
    def body(layer, x):
        layer.weight.data -= 0.01
        return x @ layer.weight.exp()

    assert "exp" not in found(body, fresh)
