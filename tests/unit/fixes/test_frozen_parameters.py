"""frozen-parameters: losses, weights and gradients of a training to the last bit, or a line that says what is missing.

Covers flatout.fixes.model.frozen_gradients through it.
"""

import copy
import gc
import io

import pytest
import torch
from tests.unit.fixes.training import same_bits, under
from torch import nn

from flatout.errors import ChangedTooLate
from flatout.fixes.frozen_parameters import FIX, choices
from flatout.rules.core.example import example
from flatout.schema.run import Causes, ModelFacts, RankSummary, UnusedGradients

STEPS = 16


@pytest.fixture(autouse=True)
def nothing_of_other_tests():
    """What a test leaves behind in cycles is looked through by the next."""
    yield
    gc.collect()


FOUND = UnusedGradients(n=3, parameters=2)


def recorded(found=FOUND, **named):
    return example(step_ms=10, backward=8, causes=Causes(unused_gradients=found), **named).run


def test_it_is_offered_where_gradients_were_seen_that_no_optimizer_reads():
    assert choices(recorded()) == ({},)
    assert "every gradient" in FIX.unfit(recorded(None))
    assert "ranks" in FIX.unfit(
        recorded(ranks=tuple(RankSummary(rank=rank, num_steps=9, median_ms=1.0) for rank in range(2)))
    )
    assert "compiled" in FIX.unfit(recorded(models=(ModelFacts(compiled=True),)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


def train(each_step=lambda step, net, optimizer, loss: None, steps=STEPS, whole=False):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters() if whole else net.head.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 6)).square().mean()
        loss.backward()
        each_step(step, net, optimizer, loss)
        optimizer.step()
        losses.append(loss.item())
    return losses, net.state_dict(), [one.grad for one in net.head.parameters()]


def ended(process):
    return dict(process.site.hits), process.site.stood_back, process.site.failure


@pytest.mark.slow
def test_a_training_is_the_same_to_the_last_bit_and_ends_its_backward_pass_early():
    plain, names = train(), []

    def look(step, net, optimizer, loss):
        names.append(loss.grad_fn is not None and reaches(loss.grad_fn, net.encoder[0].weight))
        assert all(one.requires_grad for one in net.parameters())

    with under("frozen-parameters") as process:
        ours = train(look)
        hits, stood_back, failure = ended(process)
    assert (stood_back, failure) == ("", "")
    assert same_bits(ours, plain)
    assert hits["backward pass"] >= 5
    assert names[:8] == [True] * 8
    assert names[-5:] == [False] * 5


def reaches(node, parameter, seen=None):
    seen = set() if seen is None else seen
    if node is None or node in seen:
        return False
    seen.add(node)
    if getattr(node, "variable", None) is parameter:
        return True
    return any(reaches(one, parameter, seen) for one, _ in node.next_functions)


def clips(step, net, optimizer, loss):
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def logs(step, net, optimizer, loss):
    if step % 3 == 0:
        net.encoder[0].weight.grad.norm().item()


def clears(step, net, optimizer, loss):
    net.encoder.zero_grad()


def hooks(step, net, optimizer, loss):
    if step == 0:
        net.encoder[0].weight.register_hook(lambda grad: None)


def hooks_module(step, net, optimizer, loss):
    if step == 0:
        net.encoder[2].register_full_backward_hook(lambda *_: None)


def asks(step, net, optimizer, loss):
    assert net.encoder(torch.ones(1, 6)).requires_grad


def by_hand(step, net, optimizer, loss):
    with torch.no_grad():
        for one in net.encoder.parameters():
            one -= 0.1 * one.grad


def attributes(step, net, optimizer, loss):
    found = torch.autograd.grad(net(torch.ones(1, 6)).sum(), net.encoder[0].weight)
    assert found[0].shape == (8, 6)


@pytest.mark.slow
@pytest.mark.parametrize("each", [clips, logs, clears, hooks, hooks_module, asks, by_hand, attributes])
def test_a_script_that_needs_these_gradients_runs_as_it_is(each):
    plain = train(each)
    with under("frozen-parameters") as process:
        ours = train(each)
        hits, stood_back, failure = ended(process)
    assert same_bits(ours, plain)
    assert hits == {}
    assert stood_back
    assert not failure


@pytest.mark.slow
def test_a_model_of_which_all_is_trained_runs_as_it_is():
    plain = train(whole=True)
    with under("frozen-parameters") as process:
        assert same_bits(train(whole=True), plain)
        assert ended(process)[0] == {}


def reads_late(step, net, optimizer, loss):
    if step == 13:
        net.encoder[0].weight.grad.sum()


def clips_late(step, net, optimizer, loss):
    if step == 13:
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def asks_late(step, net, optimizer, loss):
    if step == 13:
        torch.autograd.grad(net(torch.ones(1, 6)).sum(), net.encoder[0].weight)


def hooks_late(step, net, optimizer, loss):
    if step == 13:
        net.encoder[0].weight.register_hook(lambda grad: None)


def goes_back_late(step, net, optimizer, loss):
    if step == 13:
        net.encoder(torch.ones(1, 6)).sum().backward()


def steps_with_what_is_missing(step, net, optimizer, loss):
    if step == 13:
        optimizer.add_param_group({"params": net.encoder.parameters()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "late", [reads_late, clips_late, asks_late, hooks_late, goes_back_late, steps_with_what_is_missing]
)
def test_a_script_that_asks_for_what_is_missing_stops_at_once(late):
    train(late)
    with under("frozen-parameters") as process:
        with pytest.raises(ChangedTooLate, match="after flatout had frozen it"):
            train(late)
        assert process.site.failure


@pytest.mark.slow
def test_it_may_go_on_with_a_warning():
    with under("frozen-parameters", on_change="warn") as process:
        with pytest.warns(RuntimeWarning, match="no optimizer reads"):
            train(reads_late)
        assert process.site.failure


def trained_later(step, net, optimizer, loss):
    if step == 13:
        optimizer.step()
        optimizer.add_param_group({"params": net.encoder.parameters()})
        optimizer.zero_grad()


def copied(step, net, optimizer, loss):
    if step in (3, 13):
        other = copy.deepcopy(net)
        learner = torch.optim.SGD(other.parameters(), lr=0.1)
        other(torch.ones(2, 6)).sum().backward()
        learner.step()
        net.head.weight.data.add_(other.encoder[0].weight.data.sum() * 1e-3)


def saved(step, net, optimizer, loss):
    if step in (3, 13):
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
        assert all(one.requires_grad for one in other.parameters())
        other(torch.ones(2, 6)).sum().backward()
        net.head.weight.data.add_(other.encoder[0].weight.grad.sum() * 1e-3)


def frozen_by_the_script(step, net, optimizer, loss):
    if step == 12:
        net.encoder.requires_grad_(False)
    if step >= 12:
        assert not any(one.requires_grad for one in net.encoder.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("each", [trained_later, copied, saved, frozen_by_the_script])
def test_what_a_script_does_with_frozen_parameters_comes_out_the_same(each):
    plain = train(each)
    with under("frozen-parameters") as process:
        ours = train(each)
        hits, stood_back, failure = ended(process)
    assert same_bits(ours, plain)
    assert hits["backward pass"] > 0, stood_back
    assert not failure


@pytest.mark.slow
def test_everything_is_put_back():
    before = {name: torch.Tensor.__dict__.get(name) for name in ("grad", "requires_grad")}
    with under("frozen-parameters"):
        assert isinstance(torch.Tensor.grad, property)
        torch.manual_seed(0)
        net = Net()
    assert {name: torch.Tensor.__dict__.get(name) for name in before} == before
    assert all(one.requires_grad for one in net.parameters())
