import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, series, past, future):
        self.series, self.past, self.future = series, past, future

    def __len__(self):
        return len(self.series) - self.past - self.future

    def __getitem__(self, t):
        return self.series[t : t + self.past], self.series[t + self.past : t + self.past + self.future, 0]


def to_batch(items):
    past = torch.tensor([p.tolist() for p, _ in items])  # <<
    future = torch.tensor([f.tolist() for _, f in items])  # <<
    return past, future


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description="temperature forecast")
    cli.add_argument("--epochs", type=int, default=200)
    cli.add_argument("--past", type=int, default=72)
    cli.add_argument("--future", type=int, default=12)
    opt = cli.parse_args()
    rng = np.random.default_rng(0)
    hours = np.arange(3000, dtype=np.float32)[:, None]
    waves = np.sin(hours / 24 * 2 * np.pi + np.arange(12)) + 0.2 * rng.normal(size=(3000, 12))
    series = waves.astype(np.float32)
    torch.manual_seed(0)
    dataloader = DataLoader(Windows(series, opt.past, opt.future), 64, shuffle=True, collate_fn=to_batch)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(opt.past * 12, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU(),
        nn.Linear(256, opt.future),
    )
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.StepLR(optim, 20, 0.5)
    for epoch in range(opt.epochs):
        mae = []
        for past, future in dataloader:
            out = model(past)
            loss = nn.functional.l1_loss(out, future)
            optim.zero_grad()
            loss.backward()
            optim.step()
            mae.append(loss.item())
        sched.step()
        print(f"epoch {epoch:03d} MAE {np.mean(mae):.4f}")
