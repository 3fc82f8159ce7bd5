"""A compiled model, and another one compiled in place that is trained beside it."""

import torch
from torch import nn

torch.manual_seed(13)
model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3))
compiled = torch.compile(model, backend="aot_eager")
critic = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
critic.compile(backend="aot_eager")
optimizer = torch.optim.SGD([*model.parameters(), *critic.parameters()], 0.1, momentum=0.9)
x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
for step in range(8):
    part = torch.randperm(64)[:15]
    out = compiled(x[part])
    loss = nn.functional.cross_entropy(out, y[part]) + critic(out).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
