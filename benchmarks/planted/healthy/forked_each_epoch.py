"""Wind turbine faults; workers are forked for every epoch and have nothing to load."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Turbines(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.fault = rng.integers(0, 4, n)
        self.series = rng.normal(0, 1, (n, 6, 160)).astype(np.float32)
        self.series[np.arange(n), self.fault] += 0.5

    def __len__(self):
        return len(self.fault)

    def __getitem__(self, i):
        series = np.roll(self.series[i], np.random.randint(160), axis=1)
        return torch.from_numpy(series), int(self.fault[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Turbines(1920), batch_size=24, shuffle=True, num_workers=1, persistent_workers=False)
    net = nn.Sequential(
        nn.Conv1d(6, 96, 7, padding=3), nn.ReLU(), nn.Conv1d(96, 128, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(128, 128, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        running = 0.0
        for series, fault in loader:
            loss = nn.functional.cross_entropy(net(series), fault)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / len(loader):.4f}")


if __name__ == "__main__":
    main()
