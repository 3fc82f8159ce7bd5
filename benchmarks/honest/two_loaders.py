"""Labelled and unlabelled data from two loaders, the shorter one started again and again."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)
x = torch.randn(900, 12)
y = (x[:, 0] * x[:, 1] > 0).long()
labelled = DataLoader(TensorDataset(x[:150], y[:150]), batch_size=15, shuffle=True)
unlabelled = DataLoader(TensorDataset(x[150:]), batch_size=45, shuffle=True)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def forever(loader):
    while True:
        yield from loader


source = forever(labelled)
for epoch in range(60):
    for (u,) in unlabelled:
        a, b = next(source)
        p = model(u).softmax(1)
        loss = F.cross_entropy(model(a), b) + 0.1 * -(p * p.clamp_min(1e-6).log()).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
