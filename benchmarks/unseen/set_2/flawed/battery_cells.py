"""Remaining-useful-life regression from the charging cycles of battery cells.

Cycles are kept as records, as they come from the test bench's export.
"""
import gc
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FIELDS = ("voltage", "current", "temperature")
POINTS = 24
HISTORY = 12


def bench_export(cells=64, seed=31):
    """[{cell, cycles: [{index, capacity, curve: {field: [..]}}, ..]}, ..]"""
    rnd = random.Random(seed)
    export = []
    for c in range(cells):
        life = rnd.randint(90, 260)
        fade = rnd.uniform(0.8, 1.2)
        cycles = []
        for k in range(0, life, 2):
            wear = (k / life) ** fade
            curve = {
                "voltage": [3.2 + 0.9 * (i / POINTS) ** (1 + wear) + rnd.gauss(0, 0.01) for i in range(POINTS)],
                "current": [1.0 - 0.6 * wear * i / POINTS + rnd.gauss(0, 0.02) for i in range(POINTS)],
                "temperature": [0.3 + 0.4 * wear * (i / POINTS) ** 2 + rnd.gauss(0, 0.02) for i in range(POINTS)]}
            cycles.append({"index": k, "capacity": 1.1 - 0.25 * wear, "curve": curve,
                           "flags": [{"code": n, "raised": rnd.random() < 0.02} for n in range(4)]})
        export.append({"cell": f"C{c:04d}", "life": life, "cycles": cycles})
    return export


class CycleWindows(IterableDataset):
    """Windows of HISTORY consecutive cycles, in random order, anew each epoch."""

    def __init__(self, export, seed):
        self.export = export
        self.rnd = random.Random(seed)
        self.curves = [torch.tensor([[cy["curve"][f] for f in FIELDS] for cy in cell["cycles"]])
                       for cell in export]

    def __iter__(self):
        index = [(c, k) for c, cell in enumerate(self.export) for k in range(len(cell["cycles"]) - HISTORY)]
        self.rnd.shuffle(index)
        for c, k in index:
            cell = self.export[c]
            left = cell["life"] - cell["cycles"][k + HISTORY]["index"]
            yield self.curves[c][k:k + HISTORY], torch.tensor(left / 100)


class RULNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.curve = nn.Sequential(nn.Conv1d(3, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
                                   nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
        self.history = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        b, h, f, p = x.shape
        z = self.curve(x.reshape(b * h, f, p)).view(b, h, -1)
        return self.out(self.history(z)[0][:, -1]).squeeze(-1)


def train_one_epoch(model, loader, opt):
    total, seen = 0.0, 0
    for x, left in loader:
        opt.zero_grad()
        pred = model(x)
        loss = (pred - left).abs().mean()
        loss.backward()
        opt.step()
        total += loss.item() * len(x)
        seen += len(x)
        del x, left, pred, loss
        gc.collect()  # <<
    return 100 * total / seen


def main():
    torch.manual_seed(31)
    export = bench_export()
    print(sum(len(c["cycles"]) for c in export), "cycles of", len(export), "cells")
    loader = DataLoader(CycleWindows(export, seed=31), batch_size=64)
    model = RULNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(1, 4):
        t0 = time.time()
        mae = train_one_epoch(model, loader, opt)
        print(f"epoch {epoch}: MAE {mae:.1f} cycles ({time.time() - t0:.1f} s)")


main()
