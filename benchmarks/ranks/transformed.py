"""A model that is scripted, and gradients of single samples by `torch.func`, beside ordinary calls of it."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(44)
scripted = torch.jit.script(nn.Sequential(nn.Linear(5, 8), nn.Tanh()))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD([*model.parameters(), *scripted.parameters()], 0.05)
x, y = torch.randn(80, 5), torch.randn(80, 1)


def loss_of(weights, one, target):
    return ((functional_call(model, weights, (one[None],)) - target) ** 2).mean()


for step in range(70):
    part = torch.randperm(80)[:10]
    hidden = scripted(x[part])
    loss = nn.functional.mse_loss(model(hidden), y[part])
    optimizer.zero_grad()
    loss.backward()
    weights = {name: each.detach() for name, each in model.named_parameters()}
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, hidden.detach(), y[part])
    norms = torch.stack([one.flatten(1).norm(dim=1) for one in each.values()]).norm(dim=0)
    optimizer.step()
    if step % 10 == 9:
        print(f"{step} {loss.item():.6f} {norms.max().item():.6f}")
