"""Day-ahead load forecasting for a set of substations.

A temporal convolutional network reads one week of hourly load and predicts the
next 24 hours.  Data come as one .npz archive per region (here: a synthetic one).
"""
import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int = 14
    hours: int = 24 * 365
    stations: int = 16
    context: int = 168
    horizon: int = 24
    stride: int = 4
    batch_size: int = 32
    channels: int = 32
    lr: float = 1e-3
    seed: int = 7


def write_region(cfg: Config, folder: str) -> str:
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)[:, None]
    phase = rng.uniform(0, 2 * np.pi, (1, cfg.stations))
    base = rng.uniform(20, 60, (1, cfg.stations))
    daily = 8 * np.sin(2 * np.pi * t / 24 + phase)
    weekly = 4 * np.cos(2 * np.pi * t / 168 + phase / 2)
    noise = rng.normal(0, 1.5, (cfg.hours, cfg.stations))
    load = (base + daily + weekly + noise).astype(np.float32)
    hour = (np.arange(cfg.hours) % 24) / 24.0
    day = (np.arange(cfg.hours) // 24 % 7) / 7.0
    calendar = np.stack(
        [np.sin(2 * np.pi * hour), np.cos(2 * np.pi * hour),
         np.sin(2 * np.pi * day), np.cos(2 * np.pi * day)], axis=1
    ).astype(np.float32)
    path = os.path.join(folder, "region_north.npz")
    np.savez(path, load=load, calendar=calendar,
             mean=load.mean(0), std=load.std(0))
    return path


class RegionWindows(Dataset):
    def __init__(self, path, context, horizon, stride):
        self.archive = np.load(path)
        hours = len(self.archive["load"])
        self.mean = self.archive["mean"]
        self.std = self.archive["std"]
        self.context = context
        self.horizon = horizon
        self.starts = list(range(0, hours - context - horizon, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        a = self.starts[i]
        b = a + self.context
        c = b + self.horizon
        load = self.archive["load"][a:c]  # <<
        calendar = self.archive["calendar"][a:c]  # <<
        load = (load - self.mean) / self.std
        past = np.concatenate([load[: self.context], calendar[: self.context]], axis=1)
        return (
            torch.from_numpy(past.T.copy()),
            torch.from_numpy(calendar[self.context:].T.copy()),
            torch.from_numpy(load[self.context:].T.copy()),
        )


class CausalBlock(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.Conv1d(c_in, c_out, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(c_out, c_out, 1)
        self.skip = nn.Conv1d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x):
        y = F.gelu(self.conv1(F.pad(x, (self.pad, 0))))
        return self.skip(x) + self.conv2(y)


class TCN(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        c = cfg.channels
        self.blocks = nn.Sequential(
            CausalBlock(cfg.stations + 4, c, 1),
            *[CausalBlock(c, c, 2 ** k) for k in range(1, 5)],
        )
        self.future = nn.Linear(4 * cfg.horizon, c)
        self.head = nn.Sequential(
            nn.Linear(2 * c, 4 * c), nn.GELU(), nn.Linear(4 * c, cfg.stations * cfg.horizon)
        )
        self.shape = (cfg.stations, cfg.horizon)

    def forward(self, past, future_calendar):
        h = self.blocks(past)[:, :, -1]
        f = self.future(future_calendar.flatten(1))
        return self.head(torch.cat([h, f], dim=1)).view(-1, *self.shape)


def pinball(pred, target, q=0.5):
    diff = target - pred
    return torch.maximum(q * diff, (q - 1) * diff).mean()


class Trainer:
    def __init__(self, cfg: Config, path: str):
        self.cfg = cfg
        data = RegionWindows(path, cfg.context, cfg.horizon, cfg.stride)
        gen = torch.Generator().manual_seed(cfg.seed)
        self.loader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True,
                                 drop_last=True, generator=gen)
        self.model = TCN(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)

    def training_step(self, past, future, target):
        self.optimizer.zero_grad(set_to_none=True)
        loss = pinball(self.model(past, future), target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run_epoch(self):
        total = torch.zeros(())
        for past, future, target in self.loader:  # <<
            total += self.training_step(past, future, target)
        return float(total) / len(self.loader)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            t0 = time.time()
            loss = self.run_epoch()
            print(f"epoch {epoch} loss {loss:.4f} time {time.time() - t0:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    args = parser.parse_args()
    config = Config(epochs=args.epochs)
    torch.manual_seed(config.seed)
    workdir = tempfile.mkdtemp()
    Trainer(config, write_region(config, workdir)).fit()
