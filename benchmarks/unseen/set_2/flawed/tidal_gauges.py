"""Surge forecasting at tide gauges: 72 half-hourly readings in, the next 12 out."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STATIONS = 24
READINGS = 9000
CHANNELS = 4  # level, pressure, wind u, wind v


def write_archive(root: Path, seed: int = 11):
    rng = np.random.default_rng(seed)
    t = np.arange(READINGS) / 48.0
    files = []
    for s in range(STATIONS):
        phase = rng.uniform(0, 2 * np.pi, 3)
        level = 1.3 * np.sin(2 * np.pi * t / 0.5175 + phase[0]) + 0.4 * np.sin(2 * np.pi * t / 0.5 + phase[1])
        pressure = np.cumsum(rng.normal(0, 0.05, READINGS))
        pressure -= np.linspace(pressure[0], pressure[-1], READINGS)
        wind = rng.normal(0, 1, (READINGS, 2))
        wind[1:] = 0.7 * wind[:-1] + 0.3 * wind[1:]
        level = level - 0.2 * pressure + 0.1 * wind[:, 0] + rng.normal(0, 0.03, READINGS)
        record = np.column_stack([level, pressure, wind]).astype(np.float32)
        path = root / f"gauge_{s:03d}.npz"
        np.savez_compressed(path, record=record, mean=record.mean(0), std=record.std(0))
        files.append(path)
    return files


class GaugeWindows(Dataset):
    def __init__(self, files, history=72, horizon=12, stride=60):
        self.files = files
        self.history, self.horizon = history, horizon
        self.index = [(s, t) for s in range(len(files))
                      for t in range(0, READINGS - history - horizon, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, t = self.index[i]
        with np.load(self.files[s]) as z:  # <<
            record = (z["record"] - z["mean"]) / z["std"]  # <<
        x = record[t:t + self.history]
        y = record[t + self.history:t + self.history + self.horizon, 0]
        return torch.from_numpy(x.copy()), torch.from_numpy(y.copy())


class SurgeNet(nn.Module):
    def __init__(self, width=64, horizon=12):
        super().__init__()
        self.rnn = nn.GRU(CHANNELS, width, num_layers=1, batch_first=True)
        self.out = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, horizon))

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h[-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="gauges_") as d:
        data = GaugeWindows(write_archive(Path(d)))
        loader = DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
        net = SurgeNet()
        opt = torch.optim.Adam(net.parameters(), lr=args.lr)
        print(f"{len(data)} windows, {len(loader)} batches per epoch")
        for epoch in range(args.epochs):
            start, total = time.time(), 0.0
            for x, y in loader:
                loss = nn.functional.smooth_l1_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}  ({time.time() - start:.1f} s)")


if __name__ == "__main__":
    main()
