import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

# ---------------------------------------------------------------- data
# hourly water level at 12 gauges: harmonic constituents + surge; predict 6 h ahead from 48 h

GAUGES, PAST, AHEAD = 12, 48, 6
CONSTITUENTS_H = [12.4206, 12.0, 12.6583, 23.9345, 25.8193]


def levels(hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)[:, None]
    h = np.zeros((hours, GAUGES))
    for period in CONSTITUENTS_H:
        h += rng.uniform(0.1, 1.5, GAUGES) * np.cos(2 * np.pi * t / period + rng.uniform(0, 6.28, GAUGES))
    surge = np.zeros(GAUGES)
    for i in range(hours):
        surge = 0.98 * surge + rng.normal(0, 0.05) + rng.normal(0, 0.01, GAUGES)
        h[i] += surge
    return torch.tensor(h, dtype=torch.float32)


class Mixer(nn.Module):
    """A small TS-mixer."""

    def __init__(self, blocks=3, width=96):
        super().__init__()
        self.time = nn.ModuleList(nn.Sequential(nn.Linear(PAST, width), nn.GELU(), nn.Linear(width, PAST)) for _ in range(blocks))
        self.space = nn.ModuleList(nn.Sequential(nn.Linear(GAUGES, width), nn.GELU(), nn.Linear(width, GAUGES)) for _ in range(blocks))
        self.norm = nn.ModuleList(nn.LayerNorm(GAUGES) for _ in range(blocks))
        self.head = nn.Linear(PAST, AHEAD)

    def forward(self, x):
        for t, s, n in zip(self.time, self.space, self.norm):
            x = x + t(x.transpose(1, 2)).transpose(1, 2)
            x = x + s(n(x))
        return self.head(x.transpose(1, 2)).transpose(1, 2)


# ---------------------------------------------------------------- run record

class RunRecord:
    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "history.json"
        self.rows = []

    def add(self, **row):
        self.rows.append(row)
        with open(self.path, "w") as fh:  # <<
            json.dump(self.rows, fh, indent=1)  # <<


def grad_norms(model):
    return {name: round(p.grad.norm().item(), 6) for name, p in model.named_parameters() if p.dim() > 1}


# ---------------------------------------------------------------- training

def fit(steps_per_epoch=250, epochs=4, batch=64):
    torch.manual_seed(40)
    series = levels(9000, 40)
    series = (series - series.mean(0)) / series.std(0)
    cut = 8000
    offsets = torch.arange(PAST + AHEAD)
    model = Mixer()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps_per_epoch * epochs)
    record = RunRecord(Path(tempfile.mkdtemp(prefix="tide_tables_")))
    step = 0
    for epoch in range(epochs):
        tic = time.time()
        model.train()
        for _ in range(steps_per_epoch):
            start = torch.randint(cut - PAST - AHEAD, (batch,))
            w = series[start[:, None] + offsets]
            loss = nn.functional.huber_loss(model(w[:, :PAST]), w[:, PAST:])
            opt.zero_grad()
            loss.backward()
            norms = grad_norms(model)
            opt.step()
            sched.step()
            record.add(step=step, epoch=epoch, loss=round(loss.item(), 6), lr=sched.get_last_lr()[0], grad=norms)  # <<
            if step % 50 == 0:
                print(f"step {step:5d} loss {loss.item():.4f}")
            step += 1
        model.eval()
        with torch.no_grad():
            start = torch.arange(cut, len(series) - PAST - AHEAD)
            w = series[start[:, None] + offsets]
            rmse = (model(w[:, :PAST]) - w[:, PAST:]).square().mean().sqrt().item()
        print(f"epoch {epoch} rmse {rmse:.4f} {time.time() - tic:.1f}s")
    print("history in", record.path)


if __name__ == "__main__":
    fit()
