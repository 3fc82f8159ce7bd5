"""Autoregressive forecasts of the river stage: a GRU trained by teacher forcing, judged on 36-step forecasts."""
import math
import time

import torch
from torch import nn

CONTEXT, AHEAD = 96, 36


def catchments(n, length, seed):
    """Rain-fed linear reservoirs; returns stage and rain, (n, length) each."""
    g = torch.Generator().manual_seed(seed)
    rain = torch.rand(n, length, generator=g).pow(12) * 6 * torch.rand(n, 1, generator=g)
    k_fast = 0.6 + 0.2 * torch.rand(n, generator=g)
    k_slow = 0.96 + 0.03 * torch.rand(n, generator=g)
    fast = slow = torch.zeros(n)
    stage = torch.zeros(n, length)
    for t in range(length):
        fast = k_fast * fast + 0.6 * rain[:, t]
        slow = k_slow * slow + 0.1 * rain[:, t]
        stage[:, t] = fast + slow
    stage = stage + 0.02 * torch.randn(n, length, generator=g)
    return torch.log1p(stage.clamp(min=0)), torch.log1p(rain)


class StageModel(nn.Module):
    """Predicts the next stage from the stages and rain up to now and the next step's rain."""

    def __init__(self, hidden=64):
        super().__init__()
        self.gru = nn.GRU(3, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        h, state = self.gru(x, state)
        return x[..., 0] + self.out(h).squeeze(-1), state


def inputs(stage, rain):
    """Rows (stage_t, rain_t, rain_t+1) for t = 0 .. T-2."""
    return torch.stack([stage[:, :-1], rain[:, :-1], rain[:, 1:]], -1)


@torch.no_grad()
def forecast(model, stage, rain):
    """Continues stage[:, :CONTEXT] by AHEAD steps, given the rain."""
    known = stage[:, :CONTEXT]
    for k in range(AHEAD):
        t = CONTEXT + k
        x = torch.stack([known, rain[:, :t], rain[:, 1:t + 1]], -1)
        pred, _ = model(x)  # <<
        known = torch.cat([known, pred[:, -1:]], 1)
    return known[:, CONTEXT:]


def evaluate(model, stage, rain, batch=100):
    model.eval()
    errors = []
    for lo in range(0, len(stage), batch):
        s, r = stage[lo:lo + batch], rain[lo:lo + batch]
        errors.append((forecast(model, s, r) - s[:, CONTEXT:CONTEXT + AHEAD]).square().mean(0))  # <<
    return torch.stack(errors).mean(0).sqrt()


def train(model, stage, rain, opt, batch=32):
    model.train()
    total, n = 0.0, 0
    for rows in torch.randperm(len(stage)).split(batch):
        x = inputs(stage[rows], rain[rows])
        pred, _ = model(x)
        loss = nn.functional.smooth_l1_loss(pred, stage[rows, 1:])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item()
        n += 1
    return total / n


def main(epochs=4):
    torch.manual_seed(5)
    stage, rain = catchments(1600, CONTEXT + AHEAD + 1, seed=5)
    val_stage, val_rain = catchments(200, CONTEXT + AHEAD + 1, seed=6)
    model = StageModel()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    best = math.inf
    for epoch in range(epochs):
        t0 = time.time()
        loss = train(model, stage, rain, opt)
        t1 = time.time()
        rmse = evaluate(model, val_stage, val_rain)  # <<
        best = min(best, rmse.mean().item())
        print(f"epoch {epoch}  train {loss:.5f} ({t1 - t0:.1f}s)  rmse +1 {rmse[0]:.3f} +{AHEAD} {rmse[-1]:.3f}"
              f" ({time.time() - t1:.1f}s)  best mean {best:.3f}")


if __name__ == "__main__":
    main()
