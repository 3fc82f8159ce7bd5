"""A model in DataParallel, as scripts wrap it that were written for one machine with several devices."""

import torch
from torch import nn

torch.manual_seed(36)
model = nn.DataParallel(nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3)))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
x, y = torch.randn(90, 6), torch.randint(0, 3, (90,))
for step in range(12):
    part = torch.randperm(90)[:13]
    loss = nn.functional.cross_entropy(model(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
