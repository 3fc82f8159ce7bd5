"""Prototypical embedding of synthetic speakers."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Monitor:
    """Nearest prototype accuracy over the epoch."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.embeddings, self.labels = [], []
        self.right = self.seen = 0

    def update(self, embeddings, labels, prototypes):
        with torch.no_grad():
            nearest = torch.cdist(embeddings, prototypes).argmin(1)
            self.right += (nearest == labels).sum().item()
            self.seen += len(labels)


def batches(x, y, size):
    order = torch.randperm(len(x))
    for part in order.split(size):
        yield x[part], y[part]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    y = torch.randint(0, 20, (16000,))
    x = torch.randn(20, 80)[y] + torch.randn(16000, 80)
    net = nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 32))
    prototypes = nn.Parameter(torch.randn(20, 32))
    optimizer = torch.optim.Adam([*net.parameters(), prototypes], lr=1e-3)
    monitor = Monitor()
    for epoch in range(args.epochs):
        monitor.reset()
        for features, label in batches(x, y, 128):
            e = net(features)
            loss = F.cross_entropy(-torch.cdist(e, prototypes), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.update(e.detach(), label, prototypes.detach())
        print(f"epoch {epoch} loss {loss.item():.4f} nearest {monitor.right / monitor.seen:.2f}")


if __name__ == "__main__":
    main()
