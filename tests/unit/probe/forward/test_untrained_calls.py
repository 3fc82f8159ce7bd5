"""Which calls of a step no update depends on."""

from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from flatout.probe.core.seams import Seams
from flatout.probe.forward.untrained_calls import CallsFollowed


class Training:
    """A model, another one, and what is kept from step to step; `call` gives what an outermost module is called by."""

    def __init__(self, call):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.other = nn.Linear(8, 4)
        self.normed = nn.Sequential(nn.Linear(8, 96), nn.BatchNorm1d(96))
        self.call = call
        self.kept, self.bank, self.values = [], torch.zeros(64, 4), []
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def batch(self):
        return torch.randn(32, 8), torch.randint(4, (32,))

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def only_trains(self):
    x, y = self.batch()
    self.update(F.cross_entropy(self.call(self.model)(x), y))


def evaluates_in_each_step(self):
    x, y = self.batch()
    with torch.no_grad():
        hits = (self.call(self.model)(x).argmax(1) == y).float().mean()  # EVALUATED
    self.values.append(hits.item())
    only_trains(self)


def evaluates_with_gradients(self):
    x, y = self.batch()
    self.update(F.cross_entropy(self.call(self.model)(x), y))
    self.values.append(F.cross_entropy(self.call(self.model)(x), y).item())  # EVALUATED


def by_derivatives(self):
    """The loss is of a derivative of the output, and so is that of a test batch."""
    x, test_x = self.batch()[0].requires_grad_(), self.batch()[0].requires_grad_()
    energy = self.call(self.model)(x).sum()
    loss = torch.autograd.grad(energy, x, create_graph=True)[0].square().mean()
    self.update(loss)
    energy = self.call(self.model)(test_x).sum()  # EVALUATED
    self.values.append(torch.autograd.grad(energy, test_x, create_graph=True)[0].square().mean().item())


def energy_of(self, x):
    return self.call(self.model)(x.requires_grad_()).sum()  # both calls come from here


def through_one_function(self):
    (x, _), (test_x, _) = self.batch(), self.batch()
    self.update(torch.autograd.grad(energy_of(self, x), x, create_graph=True)[0].square().mean())
    test = torch.autograd.grad(energy_of(self, test_x), test_x, create_graph=True)[0]  # EVALUATED
    self.values.append(test.square().mean().item())


def distils(self):
    x, _ = self.batch()
    with torch.no_grad():
        target = self.call(self.other)(x).softmax(1)
    self.update(F.kl_div(self.call(self.model)(x).log_softmax(1), target, reduction="batchmean"))


def criticizes(self):
    """The loss is linear: no gradient depends on a value that a call returned."""
    x, _ = self.batch()
    with torch.no_grad():
        made = self.call(self.other)(x)
    self.update(self.call(self.model)(x).mean() - self.call(self.model)(torch.cat([made, made], 1)).mean())


def renews_statistics(self):
    """A pass in training mode moves the running mean, which is kept."""
    x, _ = self.batch()
    with torch.no_grad():
        self.call(self.normed)(x)
    only_trains(self)


def accumulates(self):
    self.optimizer.zero_grad()
    for _ in range(3):
        x, y = self.batch()
        F.cross_entropy(self.call(self.model)(x), y).backward()
    self.optimizer.step()


def keeps_a_bank(self):
    x, _ = self.batch()
    with torch.no_grad():
        self.bank[:32] = self.call(self.other)(x)
    only_trains(self)


def keeps_a_list(self):
    x, _ = self.batch()
    with torch.no_grad():
        self.kept.append(self.call(self.other)(x))
    only_trains(self)


def acts(self):
    x, y = self.batch()
    with torch.no_grad():
        action = self.call(self.other)(x[:1]).argmax().item()
    self.update(F.cross_entropy(self.call(self.model)(x), y) * (1 + action))


def goes_through_numpy(self):
    x, y = self.batch()
    with torch.no_grad():
        weight = self.call(self.other)(x).numpy().max()
    self.update(F.cross_entropy(self.call(self.model)(x), y) * float(weight))


def moves_an_average(self):
    x, _ = self.batch()
    with torch.no_grad():
        centre = self.call(self.other)(x).mean(0)
    self.values.append(centre.tolist())
    only_trains(self)


def followed(step):
    """Return the facts about a training of such steps."""
    log = SimpleNamespace(
        events=SimpleNamespace(fetch_listeners=[]),
        tracing=SimpleNamespace(possible=False),
        thread=get_ident(),
        fetching=False,
    )
    watch, seams = CallsFollowed(log), Seams()
    watch.install(seams)
    training = Training(lambda module: watch.around(module, module))
    try:
        for number in range(1, 17):
            step(training)
            watch.step(None, number)
    finally:
        watch.stop()
        seams.undo()
    assert torch._C._len_torch_dispatch_stack() == 0
    return watch.facts()


@pytest.mark.parametrize(
    ("step", "with_grad"),
    [
        (evaluates_in_each_step, False),
        (evaluates_with_gradients, True),
        (by_derivatives, True),
        (through_one_function, True),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_an_evaluation_in_each_step_is_found(step, with_grad):
    (found,) = followed(step)
    assert (found.module, found.calls, found.steps, found.with_grad) == ("Sequential", 2, 2, with_grad)
    assert 0 < found.seconds < found.whole_s
    assert found.place.function == step.__name__


@pytest.mark.parametrize(
    "step",
    [
        only_trains,
        distils,
        criticizes,
        renews_statistics,
        accumulates,
        keeps_a_bank,
        keeps_a_list,
        acts,
        goes_through_numpy,
        moves_an_average,
    ],
    ids=lambda step: step.__name__,
)
def test_what_an_update_may_depend_on_is_needed(step):
    assert not followed(step)


def test_an_optimizer_that_ends_a_step_by_beginning_reads_gradients_of_that_step():
    log = SimpleNamespace(
        events=SimpleNamespace(fetch_listeners=[]),
        tracing=SimpleNamespace(possible=False),
        thread=get_ident(),
        fetching=False,
    )
    watch, seams = CallsFollowed(log), Seams()
    watch.install(seams)
    training = Training(lambda module: watch.around(module, module))
    second = torch.optim.SGD(training.other.parameters(), lr=0.1)
    try:
        for number in range(1, 17):
            x, y = training.batch()
            second.zero_grad()
            F.cross_entropy(training.call(training.other)(x), y).backward()
            second.step()
            training.optimizer.zero_grad()
            F.cross_entropy(training.call(training.model)(x), y).backward()
            watch.step(None, number)
            training.optimizer.step()
    finally:
        watch.stop()
        seams.undo()
    assert not watch.facts()


def test_the_training_is_the_same():
    def weights(watched):
        training = Training(lambda module: module)
        if watched:
            log = SimpleNamespace(
                events=SimpleNamespace(fetch_listeners=[]),
                tracing=SimpleNamespace(possible=False),
                thread=get_ident(),
                fetching=False,
            )
            watch, seams = CallsFollowed(log), Seams()
            watch.install(seams)
            training.call = lambda module: watch.around(module, module)
        for number in range(1, 17):
            evaluates_in_each_step(training)
            if watched:
                watch.step(None, number)
        if watched:
            watch.stop()
            seams.undo()
        return [one.detach().clone() for one in training.model.parameters()]

    assert all(map(torch.equal, weights(False), weights(True)))
