"""Neural ODE fitted to noisy predator-prey observations at irregular times (hand-written RK4)."""
import argparse

import torch
import torch.nn as nn


def lotka_volterra(state):
    x, y = state[..., 0], state[..., 1]
    return torch.stack([1.1 * x - 0.5 * x * y, 0.3 * x * y - 0.8 * y], -1)


def rk4(f, y, dt):
    k1 = f(y)
    k2 = f(y + 0.5 * dt * k1)
    k3 = f(y + 0.5 * dt * k2)
    k4 = f(y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(f, y0, times):
    """times: (..., T) with the same leading shape as y0; returns (T, ..., D)"""
    states = [y0]
    for i in range(1, times.shape[-1]):
        dt = (times[..., i] - times[..., i - 1]).unsqueeze(-1)
        states.append(rk4(f, states[-1], dt))
    return torch.stack(states)


class Field(nn.Module):
    def __init__(self, dim=2, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, y):
        return self.net(y)


@torch.no_grad()
def observe(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    y0 = torch.rand(n, 2, generator=g) * 2 + 0.5
    gaps = 0.05 + 0.15 * torch.rand(n, length - 1, generator=g)
    times = torch.cat([torch.zeros(n, 1), gaps.cumsum(1)], 1)
    ys = odeint(lotka_volterra, y0, times).transpose(0, 1)
    return times, ys + 0.01 * torch.randn(ys.shape, generator=g)


def batch_loss(field, times, obs):
    total = 0.0
    for t, o in zip(times, obs):  # <<
        pred = odeint(field, o[0], t)  # <<
        total = total + ((pred - o) ** 2).mean()
    return total / len(times)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trajectories", type=int, default=2000)
    p.add_argument("--length", type=int, default=14)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--iters", type=int, default=180)
    a = p.parse_args()

    torch.manual_seed(5)
    times, obs = observe(a.trajectories, a.length, 5)
    hold_t, hold_y = observe(200, a.length, 6)
    field = Field()
    opt = torch.optim.Adam(field.parameters(), lr=3e-3)
    for it in range(1, a.iters + 1):
        pick = torch.randint(0, a.trajectories, (a.batch,))
        loss = batch_loss(field, times[pick], obs[pick])  # <<
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        opt.step()
        if it % 20 == 0:
            print(f"iter {it:4d}  loss {loss.item():.5f}", flush=True)
        if it % 60 == 0:
            with torch.no_grad():
                pred = odeint(field, hold_y[:, 0], hold_t).transpose(0, 1)
            print(f"          held-out rmse {((pred - hold_y) ** 2).mean().sqrt().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
