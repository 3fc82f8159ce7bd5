import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Chunks(IterableDataset):
    """Slices of a click matrix, already in batches."""

    def __init__(self, clicks, bought, size):
        self.clicks, self.bought, self.size = clicks, bought, size

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for k in range(first, len(self.clicks) // self.size, stride):
            part = slice(k * self.size, (k + 1) * self.size)
            yield self.clicks[part], self.bought[part]


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
clicks = torch.rand(60 * 2048, 192)
bought = (clicks[:, :8].sum(1) > 4).float()
loader = DataLoader(Chunks(clicks, bought, 2048), batch_size=None, num_workers=2, persistent_workers=True)  # <<
model = nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(args.epochs):
    for i, (x, y) in enumerate(loader):  # <<
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            print(epoch, i, round(loss.item(), 4))
