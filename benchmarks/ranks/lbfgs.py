"""LBFGS with a closure and a line search: many calls in one step."""

import torch
from torch import nn

torch.manual_seed(6)
x = torch.linspace(-2, 2, 61).unsqueeze(1)
y = torch.sin(2 * x)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())
    loss.backward()
    return loss


for step in range(4):
    print(f"{step} {optimizer.step(closure).item():.5f}")
