"""Loops as classes, closures and hooks, with several models and with actors."""

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from tests.loops.registry import Convolutions, images, loop, mlp, rows, state, step


class Trainer:
    """A trainer with hooks for whoever derives from it."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.losses, self.number = model, optimizer, [], 0

    def before(self): ...

    def after(self): ...

    def training_step(self, batch):
        x, y = batch
        return cross_entropy(self.model(x), y)

    def fit(self, steps, batches=rows):
        for self.number in range(steps):
            self.model.train()
            self.before()
            loss = self.training_step(batches())
            self.optimizer.zero_grad(set_to_none=self.number % 2 == 0)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
            self.after()
        return self.losses


@loop
def trainer_that_validates_in_between():
    class Validating(Trainer):
        seen = ()

        def after(self):
            self.model.eval()
            with torch.inference_mode(self.number % 2 == 1), torch.no_grad():
                self.seen = (*self.seen, self.model(images()[0]).sum().item())

    model = Convolutions()
    trainer = Validating(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    return trainer.fit(8, images), list(trainer.seen), state(model)


@loop
def trainer_that_accumulates_and_clips():
    class Accumulating(Trainer):
        def fit(self, steps):
            for self.number in range(steps):
                loss = self.training_step(rows()) / 3
                loss.backward()
                self.losses.append(loss.detach())
                if self.number % 3 == 2:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            return self.losses

    model = mlp()
    return Accumulating(model, torch.optim.Adam(model.parameters(), 1e-2)).fit(15), state(model)


@loop
def module_that_is_its_own_trainer():
    class Lit(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.criterion, self.history = mlp(), nn.CrossEntropyLoss(), []

        def configure(self):
            self.optimizer = torch.optim.SGD(self.parameters(), 0.1)
            return self.optimizer

        def training_step(self, x, y):
            self.last = self.net(x)
            self.history.append(self.last)
            return self.criterion(self.last, y)

    model = Lit()
    optimizer, losses = model.configure(), []
    for _ in range(8):
        loss = model.training_step(*rows()) + 0.1 * model.history[-1].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)


@loop
def closures_all_the_way():
    def make(model, rate):
        optimizer = torch.optim.RMSprop(model.parameters(), rate)
        return lambda batch: step(model, optimizer, batch), lambda: state(model)

    train, end = make(mlp(), 1e-2)
    return [train(rows()) for _ in range(9)], end()


@loop
def adversarial_networks():
    maker, judge = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)), nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    judge.append(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1)))
    first, second = torch.optim.Adam(maker.parameters(), 1e-2), torch.optim.Adam(judge.parameters(), 1e-2)
    losses, true, false = [], torch.ones(16, 1), torch.zeros(16, 1)
    for _ in range(9):
        made = maker(torch.randn(16, 4))
        second.zero_grad()
        loss = binary_cross_entropy_with_logits(judge(rows()[0]), true)
        loss = loss + binary_cross_entropy_with_logits(judge(made.detach()), false)
        loss.backward()
        second.step()
        first.zero_grad()
        other = binary_cross_entropy_with_logits(judge(made), true)
        other.backward()
        first.step()
        losses += [loss.detach(), other.detach()]
    return losses, state(maker, judge)


@loop
def policy_that_acts_before_it_learns():
    policy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses = torch.optim.Adam(policy.parameters(), 1e-2), []
    for _ in range(8):
        seen, kept = torch.randn(6), []
        for _ in range(4):
            choice = Categorical(logits=policy(seen))
            action = torch.tensor(len(kept) % 3)
            kept.append(choice.log_prob(action) * (1.0 + float(action)))
            seen = seen * 0.9
        loss = -torch.stack(kept).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(policy)
