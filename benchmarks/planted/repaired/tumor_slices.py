import argparse

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(14)


def slices(n, side=16):
    yy, xx = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    cy, cx = torch.randint(3, side - 3, (2, n, 1, 1))
    mask = ((yy - cy) ** 2 + (xx - cx) ** 2 < torch.randint(4, 14, (n, 1, 1))).float()
    return (mask + 0.7 * torch.randn(n, side, side)).flatten(1), mask.flatten(1)


def dice(logits, mask):
    p = logits.sigmoid()
    return 1 - ((2 * (p * mask).sum(1) + 1) / (p.sum(1) + mask.sum(1) + 1)).mean()


dataset = TensorDataset(*slices(1600))
loader = DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), 20, True), batch_size=None)
net = nn.Sequential(
    nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 256),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
for epoch in range(args.epochs):
    for x, y in loader:
        loss = dice(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()
    print(f"epoch {epoch} dice loss {loss.item():.4f}")
