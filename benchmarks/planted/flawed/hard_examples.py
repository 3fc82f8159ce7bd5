import argparse
from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Points(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, 32, generator=g)
        self.y = (self.x[:, :4].prod(1) > 0).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        index = torch.as_tensor(index)
        return index, self.x[index], self.y[index]


@dataclass
class Ledger:
    """Remembers how hard each sample was."""

    size: int
    losses: dict = field(default_factory=dict)

    def update(self, index, values):
        for i, value in zip(index, values):  # <<
            self.losses[int(i)] = float(value)  # <<

    def hardest(self, k):
        ranked = sorted(self.losses.items(), key=lambda item: item[1], reverse=True)  # <<
        return sum(value for _, value in ranked[:k]) / k


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = Points(8192)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 256, True), batch_size=None)
    net = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    ledger = Ledger(len(data))
    for epoch in range(args.epochs):
        for index, x, y in loader:
            each = nn.functional.cross_entropy(net(x), y, reduction="none")
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            ledger.update(index, each.detach())  # <<
            hard = ledger.hardest(32)  # <<
        print(f"epoch {epoch} loss {each.mean().item():.4f} hardest {hard:.3f}")


main()
