"""Gradients that the script holds, two backward passes through one graph, and gradients of gradients."""

import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(40, 64), nn.Softplus(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
model(torch.randn(4, 40)).sum().backward()
held = [one.grad for one in model.parameters()]
optimizer.zero_grad(set_to_none=False)
for step in range(50):
    x = torch.randn(12, 40, requires_grad=True)
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.pow(2).mean() + (slope.norm(dim=1) - 1).pow(2).mean()
    loss.backward(retain_graph=True)
    out[:, 0].mean().backward()
    print(f"{step} {loss.item():.6f} " + " ".join(f"{one.norm().item():.5f}" for one in held))
    wanted = [one for one in model.parameters() if one.dim() > 1]
    some = torch.autograd.grad(model(x).pow(2).mean(), wanted)
    print("  ", " ".join(f"{one.norm().item():.5f}" for one in some))
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
