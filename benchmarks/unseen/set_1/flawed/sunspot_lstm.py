# Long-memory forecasting of sunspot-like series with a stateful LSTM.
# Every training sequence is cut into consecutive segments; the state is handed
# on from one segment to the next.

import argparse
import math
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=24)
parser.add_argument("--segments", type=int, default=6)
parser.add_argument("--segment-length", type=int, default=16)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--hidden", type=int, default=64)
args = parser.parse_args()

torch.manual_seed(1749)

# ---- data: a cycle of about eleven years, monthly, with drifting period
n_series = 1280
length = args.segments * args.segment_length + 1
months = torch.arange(length).float()
period = 110 + 40 * torch.rand(n_series, 1)
phase = 2 * math.pi * torch.rand(n_series, 1)
level = 40 + 60 * torch.rand(n_series, 1)
cycle = level * (1 - torch.cos(2 * math.pi * months / period + phase)) / 2
spots = cycle + torch.randn(n_series, length) * cycle.clamp_min(1).sqrt()
spots = torch.log1p(spots.clamp_min(0))
spots = (spots - spots.mean()) / spots.std()
quarter = torch.stack([torch.sin(2 * math.pi * months / 12), torch.cos(2 * math.pi * months / 12)], -1)


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.inp = nn.Linear(3, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=1, batch_first=True)
        self.mu = nn.Linear(hidden, 1)
        self.log_sigma = nn.Linear(hidden, 1)

    def forward(self, x, state):
        h, state = self.rnn(torch.tanh(self.inp(x)), state)
        return self.mu(h).squeeze(-1), self.log_sigma(h).squeeze(-1), state


def gaussian_nll(mu, log_sigma, y):
    log_sigma = log_sigma.clamp(-4, 4)
    return (log_sigma + 0.5 * ((y - mu) / log_sigma.exp()) ** 2).mean()


model = Forecaster(args.hidden)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)

for epoch in range(args.epochs):
    started = time.time()
    epoch_loss = torch.zeros(())
    n_batches = 0
    for rows in torch.randperm(n_series).split(args.batch):
        series = spots[rows]
        season = quarter.expand(len(rows), -1, -1)
        state = None
        optimizer.zero_grad()
        for s in range(args.segments):
            a = s * args.segment_length
            b = a + args.segment_length
            x = torch.cat([series[:, a:b, None], season[:, a:b]], dim=-1)
            mu, log_sigma, state = model(x, state)  # <<
            loss = gaussian_nll(mu, log_sigma, series[:, a + 1:b + 1]) / args.segments
            loss.backward(retain_graph=True)  # <<
            epoch_loss += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        n_batches += 1
    scheduler.step()
    print(f"epoch {epoch:3d}  nll {epoch_loss.item() / n_batches:.4f}  {time.time() - started:.2f}s")
