"""
Delay forecast for line 7 and its branches.

Input : the last WINDOW stop events of a vehicle
Output: delay (in minutes) at the next stop

The operator hands us event logs as plain text, one line per stop event:
    vehicle;stop;planned;actual;load
"""
import argparse
import math
from datetime import datetime, timedelta

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

FMT = "%Y-%m-%dT%H:%M:%S"
WINDOW = 12


def fake_event_log(n_vehicles=24, events_per_vehicle=700, seed=3):
    """Stands in for the operator's dump, which we can't ship."""
    rng = np.random.default_rng(seed)
    logs = []
    for v in range(n_vehicles):
        t = datetime(2024, 2, 5, 4, 30) + timedelta(minutes=int(rng.integers(0, 40)))
        delay, lines = 0.0, []
        for e in range(events_per_vehicle):
            t += timedelta(seconds=int(rng.integers(80, 200)))
            rush = math.exp(-((t.hour - 8) ** 2) / 4) + math.exp(-((t.hour - 17) ** 2) / 5)
            delay = 0.9 * delay + rng.normal(0.15 * rush, 0.25)
            actual = t + timedelta(seconds=max(-60, int(60 * delay)))
            load = int(np.clip(rng.normal(40 + 60 * rush, 15), 0, 180))
            lines.append(f"{v};{e % 31};{t.strftime(FMT)};{actual.strftime(FMT)};{load}")
        logs.append(lines)
    return logs


def event_features(line):
    vehicle, stop, planned, actual, load = line.split(";")
    planned = datetime.strptime(planned, FMT)  # <<
    actual = datetime.strptime(actual, FMT)  # <<
    day_frac = (planned.hour * 60 + planned.minute) / 1440
    return [
        (actual - planned).total_seconds() / 60,
        math.sin(2 * math.pi * day_frac),
        math.cos(2 * math.pi * day_frac),
        float(planned.weekday() >= 5),
        int(stop) / 31,
        int(load) / 180,
    ]


class StopEvents(Dataset):
    def __init__(self, logs, window):
        self.logs = logs
        self.window = window
        self.index = [(v, s) for v, lines in enumerate(logs) for s in range(len(lines) - window)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        v, s = self.index[k]
        feats = [event_features(line) for line in self.logs[v][s:s + self.window + 1]]  # <<
        feats = torch.tensor(feats, dtype=torch.float32)
        return feats[:-1], feats[-1, 0]


class DelayNet(nn.Module):
    def __init__(self, n_in=6, hidden=48):
        super().__init__()
        self.gru = nn.GRU(n_in, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        _, h = self.gru(x)
        # predict the change w.r.t. the last known delay, works better than absolute
        return x[:, -1, 0] + self.head(h[-1]).squeeze(-1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()
    torch.manual_seed(11)

    data = StopEvents(fake_event_log(), WINDOW)
    n_val = len(data) // 12
    train_set, val_set = random_split(data, [len(data) - n_val, n_val])
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=256)

    net = DelayNet()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    loss_fn = nn.SmoothL1Loss()

    for epoch in range(1, args.epochs + 1):
        net.train()
        running = 0.0
        for x, y in train_loader:
            opt.zero_grad()
            loss = loss_fn(net(x), y)
            loss.backward()
            opt.step()
            running += loss.item()

        net.eval()
        abs_err = 0.0
        with torch.no_grad():
            for x, y in val_loader:
                abs_err += (net(x) - y).abs().sum().item()
        print(f"epoch {epoch:2d}  train {running / len(train_loader):.4f}  val MAE {abs_err / n_val:.3f} min")


if __name__ == "__main__":
    main()
