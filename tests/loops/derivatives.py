"""Graphs walked twice, second derivatives, functional transforms and optimizers that ask for the loss again."""

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.functional import cross_entropy, mse_loss, softplus
from torch.utils.checkpoint import checkpoint

from tests.loops.registry import Convolutions, images, loop, mlp, rows, state, step


@loop
def gradient_penalty_now_and_then():
    critic = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer, losses = torch.optim.Adam(critic.parameters(), 1e-2), []
    for number in range(12):
        real, _ = rows()
        real.requires_grad_(number % 4 == 3)
        scores = critic(real)
        loss = softplus(-scores).mean()
        if number % 4 == 3:
            (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
            loss = loss + slope.square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(critic)


@loop
def graph_walked_twice_in_one_late_step():
    model = mlp()
    optimizer, losses, norms = torch.optim.SGD(model.parameters(), 0.1), [], []
    for number in range(12):
        x, y = rows()
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        if number == 9:
            norms += torch.autograd.grad(loss, [model[0].weight], retain_graph=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms, state(model)


@loop
def curvature_of_the_loss_is_logged():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, seen = torch.optim.SGD(model.parameters(), 0.1), [], []
    for number in range(9):
        x, y = rows()
        loss = cross_entropy(model(x), y)
        if number in (6, 7):
            held = list(model.parameters())
            slopes = torch.autograd.grad(loss, held, create_graph=True)
            along = sum((slope * slope.detach()).sum() for slope in slopes)
            seen += torch.autograd.grad(along, held, retain_graph=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, seen, state(model)


@loop
def meta_learning_by_functional_calls():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(8):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(2):
            x, y = rows()
            held = dict(model.named_parameters())
            inner = cross_entropy(functional_call(model, held, (x,)), y)
            slopes = torch.autograd.grad(inner, held.values(), create_graph=True)
            fast = {name: held[name] - 0.1 * slope for name, slope in zip(held, slopes, strict=True)}
            x, y = rows()
            total = total + cross_entropy(functional_call(model, fast, (x,)), y)
        total.backward()
        optimizer.step()
        losses.append(total.detach())
    return losses, state(model)


@loop
def gradients_of_each_sample():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, noise = torch.optim.SGD(model.parameters(), 0.1), [], []

    def one(held, x, y):
        return cross_entropy(functional_call(model, held, (x[None],)), y[None])

    for number in range(8):
        x, y = rows()
        losses.append(step(model, optimizer, (x, y)))
        if number > 4:
            held = {name: value.detach() for name, value in model.named_parameters()}
            noise += [each.var(0) for each in vmap(grad(one), in_dims=(None, 0, 0))(held, x, y).values()]
    return losses, noise, state(model)


@loop
def jacobian_of_the_outputs_at_the_end_of_an_epoch():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, seen = torch.optim.SGD(model.parameters(), 0.1), [], []
    for number in range(9):
        x, y = rows()
        losses.append(step(model, optimizer, (x, y)))
        if number % 4 == 3:
            seen.append(torch.autograd.functional.jacobian(model, x[:2]))
            seen.append(torch.autograd.functional.hessian(lambda one: model(one).square().sum(), x[0]))
            seen.append(jacrev(model)(x[0]))
    return losses, seen, state(model)


@loop
def forward_derivative_in_the_middle():
    import torch.autograd.forward_ad as forward

    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, seen = torch.optim.SGD(model.parameters(), 0.1), [], []
    for number in range(8):
        x, y = rows()
        losses.append(step(model, optimizer, (x, y)))
        if number == 5:
            with forward.dual_level():
                seen.append(forward.unpack_dual(model(forward.make_dual(x, torch.ones_like(x)))).tangent.detach())
    return losses, seen, state(model)


@loop
def lbfgs_asks_for_the_loss_again():
    model = nn.Linear(6, 3)
    optimizer, losses = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3), []
    for _ in range(5):
        x, y = rows()

        def again(x=x, y=y):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        losses.append(optimizer.step(again).detach())
    return losses, state(model)


@loop
def sharpness_aware_in_two_passes():
    model = mlp()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    for _ in range(8):
        x, y = rows()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        with torch.no_grad():
            moved = [0.05 * each.grad / (each.grad.norm() + 1e-12) for each in model.parameters()]
            for each, way in zip(model.parameters(), moved, strict=True):
                each.add_(way)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for each, way in zip(model.parameters(), moved, strict=True):
                each.sub_(way)
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)


@loop
def two_losses_with_a_step_between():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x):
            h = torch.tanh(self.body(x))
            return self.one(h), self.two(h)

    model = Heads()
    first = torch.optim.SGD(model.one.parameters(), 0.1)
    second = torch.optim.SGD([*model.body.parameters(), *model.two.parameters()], 0.1)
    losses = []
    for _ in range(8):
        x, y = rows()
        scores, value = model(x)
        first.zero_grad()
        second.zero_grad()
        loss, other = cross_entropy(scores, y), value.square().mean()
        loss.backward(retain_graph=True)
        first.step()
        other.backward()
        second.step()
        losses += [loss.detach(), other.detach()]
    return losses, state(model)


@loop
def checkpointed_parts_with_dropout():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Tanh()) for _ in range(3)])
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            for number, part in enumerate(self.parts):
                x = checkpoint(part, x, use_reentrant=number == 1)
            return self.head(x)

    model = Parts()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(8):
        x, y = rows()
        losses.append(step(model, optimizer, (x.requires_grad_(), y)))
    return losses, state(model)


@loop
def the_whole_model_is_checkpointed():
    model = Convolutions()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(8):
        x, y = images()
        loss = cross_entropy(checkpoint(model, x, use_reentrant=False) if number > 2 else model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)


@loop
def physics_informed_by_second_derivatives():
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(8):
        x = torch.rand(16, 1, requires_grad=True)
        u = model(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        loss = mse_loss(second, -u) + (model(torch.zeros(1, 1)) - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model)
