"""Siamese network; embeddings of the epoch are kept to measure their spread."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Monitor:
    def __init__(self):
        self.kept = []

    def remember(self, embedding):
        self.kept.append(embedding.detach())

    def spread(self):
        value = torch.cat(self.kept).std(0).mean().item()
        self.kept.clear()
        return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    left = torch.randn(1920, 1, 16, 16)
    same = torch.randint(0, 2, (1920,)).float()
    right = torch.where(same.view(-1, 1, 1, 1) > 0, left, torch.randn_like(left)) + 0.2 * torch.randn_like(left)
    loader = DataLoader(TensorDataset(left, right, same), batch_size=32, shuffle=True)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(512, 32),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    monitor = Monitor()
    for epoch in range(args.epochs):
        for a, b, s in loader:
            ea, eb = net(a), net(b)
            distance = (ea - eb).square().sum(1)
            loss = (s * distance + (1 - s) * torch.relu(4 - distance)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.remember(ea)
        print(f"epoch {epoch} loss {loss.item():.4f} spread {monitor.spread():.4f}")


if __name__ == "__main__":
    main()
