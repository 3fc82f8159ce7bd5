import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()

lr, momentum, decay, limit = 0.02, 0.9, 1e-4, 0.5
torch.manual_seed(0)

blocks = []
for _ in range(60):
    blocks += [nn.Linear(24, 24), nn.LayerNorm(24), nn.Tanh()]
net = nn.Sequential(nn.Linear(12, 24), *blocks, nn.Linear(24, 3))
params = list(net.parameters())
velocity = [torch.zeros_like(p) for p in params]

x = torch.randn(1280, 12)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
data = TensorDataset(x, y)
loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 32, False), batch_size=None)

for epoch in range(args.epochs):
    total = 0.0
    for a, b in loader:
        loss = F.cross_entropy(net(a), b)
        loss.backward()
        with torch.no_grad():
            for p, v in zip(params, velocity):  # <<
                g = p.grad  # <<
                norm = g.norm()  # <<
                g = g * torch.clamp(limit / (norm + 1e-6), max=1.0)  # <<
                g = g + decay * p  # <<
                v.mul_(momentum).add_(g)  # <<
                p.sub_(lr * v)  # <<
                p.grad = None  # <<
        total += loss.item()
    print(f"epoch {epoch} loss {total / 40:.5f}")
