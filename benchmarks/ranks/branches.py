"""A model that shuffles features over the batch by lot, in some calls, and one that scales a batch that is large."""

import random

import torch
from torch import nn

torch.manual_seed(42)
random.seed(4)


class ByLot(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 16)

    def forward(self, x):
        x = torch.relu(self.layer(x))
        if self.training and random.random() < 0.2:
            x = 0.7 * x + 0.3 * x[torch.randperm(len(x))]
        return x


class ByItsData(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x):
        x = self.layer(x)
        return x if x.norm() < 6 else x * (6 / x.norm())


model = nn.Sequential(nn.Identity())
lot, data = ByLot(), ByItsData()
model.extend([lot, data])
optimizer = torch.optim.SGD(model.parameters(), 0.2)
x, y = torch.randn(120, 8), torch.randint(0, 3, (120,))
x[::9] *= 5
for step in range(24):
    part = torch.arange(5 * step, 5 * step + 14) % 120
    loss = nn.functional.cross_entropy(data(lot(x[part])), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
