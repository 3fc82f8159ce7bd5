"""Detect spikes in multi-electrode recordings with a 1-D convolutional net."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)  # <<


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 7, padding=3)
        self.norm = nn.BatchNorm1d(cout)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Trainer:
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        x = torch.randn(640, 4, 200, generator=g, dtype=torch.float64)
        y = torch.rand(640, generator=g) > 0.5
        x[y, :, 80:90] += 1.5
        self.loader = DataLoader(TensorDataset(x, y.double()), batch_size=32, shuffle=True)
        self.net = nn.Sequential(
            Block(4, 32), nn.MaxPool1d(2), Block(32, 64), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 1)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.loss = nn.BCEWithLogitsLoss()

    def epoch(self):
        total = 0.0
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.net(x).squeeze(1), y)  # <<
            loss.backward()  # <<
            self.optimizer.step()
            total += loss.item()
        return total / len(self.loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(1)
    trainer = Trainer()
    for epoch in range(args.epochs):
        print(f"epoch {epoch} loss {trainer.epoch():.3f}")
