"""Nothing is seeded; numpy makes the data, Python shuffles it, batches are cut by hand."""

import random

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng()
data = rng.normal(size=(400, 10)).astype("float32")
target = np.sin(data.sum(1, keepdims=True)) + 0.1 * np.random.randn(400, 1).astype("float32")
net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 1))
opt = torch.optim.Adagrad(net.parameters(), lr=0.02)
order = list(range(400))
for epoch in range(100):
    random.shuffle(order)
    for start in range(0, 400, 40):
        pick = order[start : start + 40]
        x, y = torch.from_numpy(data[pick]), torch.from_numpy(target[pick].astype("float32"))
        loss = ((net(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
