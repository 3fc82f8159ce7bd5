"""Gradients that no optimizer reads are found in the graph; whoever else reads them is believed."""

import gc
import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.seams import Seams
from flatout.probe.model.unused_gradients import GradientWatch, _Graph
from flatout.schema.run import Step

STEPS = 12


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def train(model, trained, *, by_hand=lambda model: None, micro=1, wrap=lambda model: model, kept=None):
    optimizer = torch.optim.SGD(trained, lr=0.1)
    watch, called = GradientWatch(raise_it, lambda: [optimizer]), wrap(model)
    for number in range(1, STEPS + 1):
        for _ in range(micro):
            x = torch.ones(8, 16)
            watch.called(called, ((x,), {}))
            loss = called(x).square().mean()
            watch.backward(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        by_hand(model)
        watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
    assert not watch._needless._handles
    if kept is not None:
        kept.append(watch)
    return watch.facts([called])


@pytest.mark.parametrize("micro", [1, 3])
def test_what_stands_before_the_part_that_is_trained_is_found(micro):
    model = made()
    found = train(model, model[2].parameters(), micro=micro)
    assert (found.n, found.parameters, found.largest) == (3, 2, "0.weight")
    assert found.num_bytes == 4 * (16 * 32 + 32)
    assert found.all_bytes == found.num_bytes + 4 * (32 * 4 + 4)
    assert found.seconds > 0
    assert found.place.file == __file__


def test_the_part_of_which_nothing_is_trained_is_told_and_whether_gradients_are_asked_of_it():
    model = made()
    found = train(model, model[2].parameters())
    assert (found.untrained, found.given_gradients) == ("0", False)
    trained = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for asks in (True, False):
        whole = made()
        watch = GradientWatch(raise_it, lambda: [optimizer])
        for number in range(1, STEPS + 1):
            given = trained(torch.ones(8, 16))
            handed = {"x": [given if asks else given.detach()]}
            watch.called(whole, ((), handed))
            loss = whole(handed["x"][0]).square().mean() + given.square().mean()
            watch.backward(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
        found = watch.facts([whole])
        assert (found.untrained, found.given_gradients) == ("", asks)


def test_a_part_that_is_trained_in_places_is_none_of_which_nothing_is_trained():
    model = nn.Sequential(made(), nn.Linear(4, 4))
    found = train(model, [model[0][0].bias, *model[1].parameters()])
    assert (found.largest, found.untrained) == ("0.0.weight", None)


def test_a_step_of_several_passes_is_told_as_one(monkeypatch):
    seconds = itertools.count(1)
    monkeypatch.setattr("flatout.probe.model.unused_gradients.perf_counter", lambda: next(seconds))
    one, three = (train(model := made(), model[2].parameters(), micro=micro).seconds for micro in (1, 3))
    assert (one, three) == (5, 15)  # tanh, the layer's product, its transposed weight, two parameters


def test_where_all_is_trained_nothing_is_found():
    model = made()
    assert train(model, model.parameters()) is None


def test_what_is_frozen_asks_for_nothing():
    model = made()
    model[0].requires_grad_(False)
    assert train(model, model[2].parameters()) is None


def test_an_optimizer_that_has_not_stepped_yet_will_read_its_gradients():
    model = made()
    later = torch.optim.Adam(model[0].parameters())
    assert train(model, model[2].parameters()) is None
    del later


def test_what_the_script_changes_by_hand_is_read():
    def by_hand(model):
        model[0].weight.data.sub_(model[0].weight.grad, alpha=0.1)

    model = made()
    assert train(model, model[2].parameters(), by_hand=by_hand) is None


def test_a_network_that_takes_over_the_values_of_another_reads_no_gradients():
    """A target network is a copy of the trained one, made anew every so many steps."""
    target, trained = made(), made()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    unread = {id(one) for one in target.parameters()}
    for copied, expected in ((unread, 4), ((), None)):
        watch = GradientWatch(raise_it, lambda: [optimizer], copied)
        for number in range(1, STEPS + 1):
            watch.called(target, ((), {}))
            loss = (trained(torch.ones(8, 16)) - target(torch.rand(8, 16))).square().mean()
            watch.backward(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.load_state_dict(trained.state_dict())
            watch.step(Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8), number)
        found = watch.facts([trained, target])
        assert (found and found.parameters) == expected


def test_training_is_the_same_with_it():
    weights = []
    for look in (True, False):
        model = made()
        if look:
            train(model, model[2].parameters())
        else:
            optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
            for _ in range(STEPS):
                model(torch.ones(8, 16)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        weights.append([model[2].weight.detach(), model[0].weight.grad])
    assert all(map(torch.equal, *weights))


def test_what_is_not_read_can_be_frozen_for_a_trial():
    model, kept = made(), []
    train(model, model[2].parameters(), kept=kept)
    freeze = kept[0].freezing()
    for on in (True, False):
        freeze(on)
        assert [one.requires_grad for one in model.parameters()] == [not on, not on, True, True]


def test_nothing_is_frozen_where_a_script_may_miss_the_gradients():
    model, kept = made(), []
    train(model, model[2].parameters(), kept=kept, by_hand=lambda model: model.zero_grad())
    assert kept[0].freezing() is None
    train(model, model.parameters(), kept=kept)
    assert kept[1].freezing() is None


def test_nothing_is_frozen_that_an_optimizer_will_read_which_has_not_stepped_yet():
    model, kept = made(), []
    later = torch.optim.SGD(model[0].parameters(), lr=0.1)
    train(model, model[2].parameters(), kept=kept)
    assert kept[0].freezing() is None
    del later


def test_nothing_is_frozen_that_the_script_trains_by_hand():
    def step(model):
        with torch.no_grad():
            model[0].weight -= 0.1

    model, kept = made(), []
    train(model, model[2].parameters(), kept=kept, by_hand=step)
    assert kept[0].freezing() is None


@pytest.mark.parametrize("hooks", [lambda x: x.register_hook(print), lambda x: x.retain_grad()])
def test_nothing_is_frozen_where_a_script_hooks_what_is_computed(hooks):
    model, kept = made(), []
    train(model, model[2].parameters(), kept=kept)
    seams = Seams()
    kept[0].install(seams)
    assert kept[0].freezing() is not None
    hooks(model[0](torch.ones(8, 16)))
    seams.undo()
    assert kept[0].freezing() is None
    assert "retain_grad" not in vars(torch.Tensor)


class Checkpointed(nn.Module):
    """A part in the middle is computed again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.body, self.middle, self.head = reentrant, *map(nn.Linear, (16, 32, 32), (32, 32, 4))

    def forward(self, x):
        return self.head(checkpoint(self.middle, self.body(x), use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_that_wants_an_input_with_gradients_gets_it(reentrant):
    model, kept = Checkpointed(reentrant), []
    found = train(model, [*model.middle.parameters(), *model.head.parameters()], kept=kept)
    assert (found is None, kept[0].freezing() is None) == (reentrant, reentrant)


def test_parameters_that_cannot_be_summed_are_no_error(monkeypatch):
    def fails(parameter):
        raise TypeError("no sum")

    monkeypatch.setattr("flatout.probe.model.unused_gradients._sum", fails)
    model, kept = made(), []
    assert train(model, model[2].parameters(), kept=kept) is None
    assert kept[0].freezing() is None


def names(graph):
    return sorted(type(node).__name__ for node, needed in graph.nodes() if not needed)


def test_only_what_leads_to_nothing_else_is_needless():
    model, x = made(), torch.ones(8, 16, requires_grad=True)
    held = {id(one) for one in model[2].parameters()}
    plain = _Graph([model(x.detach()).sum().grad_fn], held)
    assert names(plain) == ["AccumulateGrad", "AccumulateGrad", "AddmmBackward0", "TBackward0", "TanhBackward0"]
    asked = _Graph([model(x).sum().grad_fn], held)  # somebody wants the gradient of the input
    assert names(asked) == ["AccumulateGrad", "AccumulateGrad", "TBackward0"]
    first = _Graph([model(x.detach()).sum().grad_fn], {id(model[0].weight)})
    assert names(first) == ["AccumulateGrad"] * 3 + ["TBackward0"]


def test_a_graph_that_is_too_large_is_left_alone(monkeypatch):
    monkeypatch.setattr("flatout.probe.model.unused_gradients._MOST_NODES", 5)
    model = made()
    assert train(model, model[2].parameters()) is None


def test_names_are_those_of_the_model_and_not_of_what_is_around_it():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = made()
        kept = []
        found = train(model, model[2].parameters(), wrap=DistributedDataParallel, kept=kept)
        assert (found.parameters, found.largest) == (2, "0.weight")
        assert kept[0].freezing() is None
    finally:
        gc.collect()
        dist.destroy_process_group()
