"""Noise on a codebook of as many entries as some batches have rows, beside noise on the rows."""

import torch
from torch import nn

torch.manual_seed(34)


class Coded(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.codes = nn.Linear(4, 8), nn.Parameter(torch.randn(8))

    def forward(self, x):
        shaken = self.codes + 0.2 * torch.randn(8)
        x = torch.relu(self.inner(x))
        return x * shaken + 0.1 * torch.randn_like(x)


model = nn.Sequential(Coded(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
for step in range(12):
    part = torch.randperm(64)[: (10, 8, 4, 2, 16, 3)[step % 6]]
    loss = nn.functional.cross_entropy(model(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {len(part)} {loss.item():.6f}")
