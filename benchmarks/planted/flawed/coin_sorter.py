"""Sort coins by their photo; accuracy on both sets after each epoch."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def coins(n, seed, side=20):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 8, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    disc = ((yy**2 + xx**2).sqrt() < 0.45 + 0.06 * kind.view(-1, 1, 1)).float()
    tint = 0.1 * torch.randn(n, 3, 1, 1, generator=g)
    return TensorDataset(disc[:, None] + tint + 0.3 * torch.randn(n, 3, side, side, generator=g), kind)


def accuracy(net, loader):
    net.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:  # <<
            hits += (net(x).argmax(1) == y).sum().item()  # <<
            total += len(y)
    net.train()
    return hits / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_loader = DataLoader(coins(800, 0), batch_size=40, shuffle=True)
    test_loader = DataLoader(coins(80, 1), batch_size=40)
    net = nn.Sequential(
        nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 64, 64), nn.ReLU(), nn.Linear(64, 8),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: train {accuracy(net, train_loader):.3f} test {accuracy(net, test_loader):.3f}")  # <<


if __name__ == "__main__":
    main()
