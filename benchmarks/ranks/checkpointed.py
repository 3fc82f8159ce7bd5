"""Blocks that are computed again in the backward pass, with dropout in them."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(12)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Tanh())
                                    for _ in range(3))  # fmt: skip
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = x + checkpoint(block, x, use_reentrant=number == 1)
        return self.head(x)


model = Deep()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x, y = torch.randn(48, 16), torch.randn(48, 1)
for step in range(8):
    part = torch.randperm(48)[:14]
    loss = nn.functional.mse_loss(model(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
