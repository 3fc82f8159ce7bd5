"""Parameters that reach C++ past Python, hooks of the script's own, and graphs that outlive other calls."""

import torch
from torch import nn

torch.manual_seed(7)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(40, 40), nn.Linear(40, 40)

    def forward(self, x):
        slope = torch.func.vmap(torch.func.grad(lambda row: self.second(row).pow(2).sum()))(x)
        return self.second(self.first(x).tanh()) + 0.1 * slope


model, other = Model(), nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 40))
optimizer = torch.optim.Adam([*model.parameters(), *other.parameters()], 1e-3)
seen = []
other[0].weight.register_hook(lambda grad: seen.append(grad.norm().item()))
other[2].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad.norm().item()))
for step in range(50):
    x = torch.randn(8, 40)
    penalty = model.first.weight.pow(2).sum() + Own.apply(x, model.second.weight).sin().mean()
    loss = model(x).pow(2).mean() + other(x).sub(1).pow(2).mean() + 1e-3 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    params = dict(model.named_parameters())
    found = torch.func.grad(lambda given, x=x: torch.func.functional_call(model, given, (x,)).pow(2).mean())(params)
    print(f"{step} {loss.item():.6f} {sum(seen):.5f} " + " ".join(f"{one.norm().item():.6f}" for one in found.values()))
    seen.clear()
