"""Multi-horizon household energy forecast: wide LSTM, quantile loss, short validation."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

QUANTILES = (0.1, 0.5, 0.9)


def households(n, hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    habit = rng.uniform(0, 2 * np.pi, (n, 1))
    use = 1.2 + np.sin(2 * np.pi * t / 24 + habit) + 0.3 * np.sin(2 * np.pi * t / 168)
    use = use + rng.gamma(1.0, 0.4, (n, hours))
    return use.astype(np.float32)


class Windows(Dataset):
    """Answers a whole list of indices at once."""

    def __init__(self, series, context, horizon, stride):
        view = np.lib.stride_tricks.sliding_window_view(series, context + horizon, axis=1)[:, ::stride]
        self.table = torch.from_numpy(view.reshape(-1, context + horizon).copy())
        self.context = context

    def __len__(self):
        return len(self.table)

    def __getitem__(self, rows):
        w = self.table[rows]
        return w[:, : self.context, None], w[:, self.context:]


def loader(data, batch, seed):
    order = RandomSampler(data, generator=torch.Generator().manual_seed(seed))
    return DataLoader(data, batch_size=None, sampler=BatchSampler(order, batch, drop_last=True))


class Forecaster(nn.Module):
    def __init__(self, hidden, horizon):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(1, 64), nn.SiLU())
        self.rnn = nn.LSTM(64, hidden, batch_first=True)
        self.head = nn.Linear(hidden, horizon * len(QUANTILES))
        self.horizon = horizon

    def forward(self, x):
        _, (h, _) = self.rnn(self.lift(x))
        return self.head(h[-1]).view(len(x), self.horizon, len(QUANTILES))


class QuantileLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.tensor(QUANTILES))

    def forward(self, guess, y):
        e = y.unsqueeze(-1) - guess
        return torch.maximum(self.q * e, (self.q - 1) * e).mean()


class Experiment:
    def __init__(self, epochs):
        self.epochs = epochs
        series = households(60, 24 * 28, seed=9)
        self.train_data = Windows(series[:56], 48, 12, stride=12)
        self.valid_data = Windows(series[56:], 48, 12, stride=24)
        self.model = Forecaster(256, 12)
        self.loss = QuantileLoss()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train(self, batches):
        total, n = torch.zeros(()), 0
        for x, y in batches:
            loss = self.loss(self.model(x), y)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            total += loss.detach()
            n += 1
        return total.item() / n

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.valid_data[slice(None)]
        value = self.loss(self.model(x), y).item()
        self.model.train()
        return value

    def run(self):
        batches = loader(self.train_data, 96, seed=1)
        for epoch in range(self.epochs):
            t0 = time.time()
            a = self.train(batches)
            b = self.validate()
            print(f"epoch {epoch} train {a:.4f} valid {b:.4f} {time.time() - t0:.2f}s")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=14)
    torch.manual_seed(9)
    Experiment(ap.parse_args().epochs).run()
