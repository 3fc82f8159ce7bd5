"""Models that give, keep and write what they compute in every way, fail on the way, or are called in odd ones."""

from collections import namedtuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from tests.loops.registry import Convolutions, images, loop, mlp, rows, state, step

Scores = namedtuple("Scores", "logits features")


@loop
def actor_and_critic_with_outputs_by_name():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x):
            h = torch.tanh(self.body(x))
            return {"actor": self.actor(h), "critic": self.critic(h).squeeze(-1), "both": Scores(self.actor(h), h)}

    model = Both()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    for _ in range(9):
        x, y = rows()
        found = model(x)
        loss = cross_entropy(found["actor"], y) + mse_loss(found["critic"], y.float())
        loss = loss + found["both"].features.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)


@loop
def features_kept_in_an_attribute():
    class Keeping(Convolutions):
        def forward(self, x):
            self.features = self.body(x)
            self.maps = [self.features.relu(), {"mean": self.features.mean()}]
            return self.head(self.features.flatten(1))

    model, probe = Keeping(), nn.Conv2d(4, 2, 1)
    optimizer, losses = torch.optim.SGD([*model.parameters(), *probe.parameters()], 0.05), []
    for _ in range(8):
        x, y = images()
        loss = cross_entropy(model(x), y) + probe(model.features).square().mean() + model.maps[1]["mean"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model, probe)


@loop
def outputs_one_after_the_other():
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

        def forward(self, x):
            for stage in self.stages:
                x = torch.tanh(stage(x))
                yield x

    model, head = Stages(), nn.Linear(6, 3)
    optimizer, losses = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1), []
    for _ in range(8):
        x, y = rows()
        loss = sum(cross_entropy(head(each), y) for each in model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model, head)


@loop
def errors_in_forward_are_skipped():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls, self.log = mlp(), 0, []
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.log.append(self.calls)
            self.count += 1
            h = self.net(x)
            if self.calls % 4 == 3 or not torch.isfinite(x).all():
                raise ValueError("a bad batch")
            return h

    model = Careful()
    optimizer, losses, bad = torch.optim.SGD(model.parameters(), 0.1), [], 0
    for number in range(14):
        x, y = rows()
        if number == 8:
            x[0, 0] = float("nan")
        try:
            losses.append(step(model, optimizer, (x, y)))
        except ValueError:
            bad += 1
    return losses, bad, model.calls, list(model.log), state(model)[-1:], torch.rand(2)


@loop
def early_exit_by_what_was_computed():
    class Exits(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.early = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            h = torch.tanh(self.one(x))
            if x.abs().mean() > 0.8:
                return self.early(h)
            return self.early(torch.tanh(self.two(h)))

    model = Exits()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    losses += [step(model, optimizer) for _ in range(12)]
    return losses, state(model)


@loop
def a_buffer_is_written_between_call_and_backward():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x):
            return torch.relu(self.net(x) + self.shift) + 0.1 * self.net(x)

    model = Shifted()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(10):
        x, y = rows()
        scores = model(x)
        loss = cross_entropy(scores, y)
        if number > 5:
            model.shift.add_(scores.detach().mean(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)


@loop
def one_module_twice_and_forward_called_directly():
    shared, models = nn.Linear(6, 6), [nn.Linear(6, 3), nn.Linear(6, 3)]
    held = [*shared.parameters(), *(each for model in models for each in model.parameters())]
    optimizer, losses = torch.optim.SGD(held, 0.1), []
    for number in range(9):
        x, y = rows()
        h = shared(torch.tanh(shared(x)))
        loss = cross_entropy(models[0].forward(h), y) + cross_entropy(models[number % 2](h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(shared, *models)


@loop
def sequences_of_changing_length():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.cell, self.out = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 9)

        def forward(self, x, hidden=None):
            h, hidden = self.cell(self.inside(x), hidden)
            return self.out(h), hidden

    model = Reader()
    optimizer, losses, hidden = torch.optim.Adam(model.parameters(), 1e-2), [], None
    for number in range(12):
        x = torch.randint(0, 9, (4, 3 + number % 3))
        scores, hidden = model(x, hidden)
        hidden = hidden.detach()
        loss = cross_entropy(scores.flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)
