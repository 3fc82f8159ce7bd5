"""Latent-free neural ODE for damped double-well pendulums, integrated with RK4 in a Python loop over time."""
import argparse
import time

import torch
from torch import nn


class VectorField(nn.Module):
    def __init__(self, dim=4, hidden=192):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(dim, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus(), nn.Linear(hidden, dim))
        self.calls = 0

    def forward(self, y):
        self.calls += 1
        return self.seq(y)


def true_field(y):
    q, p = y[..., :2], y[..., 2:]
    force = q - q ** 3 - 0.1 * p + 0.2 * q.flip(-1)
    return torch.cat([p, force], -1)


def integrate(f, y, dt, steps):
    path = [y]
    for _ in range(steps):
        k1 = f(y)
        k2 = f(y + dt / 2 * k1)
        k3 = f(y + dt / 2 * k2)
        k4 = f(y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * (k2 + k3) + k4)
        path.append(y)
    return torch.stack(path, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=10)
    ap.add_argument("--dt", type=float, default=0.1)
    ap.add_argument("--batch", type=int, default=384)
    ap.add_argument("--epochs", type=int, default=8)
    a = ap.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        paths = integrate(true_field, torch.randn(16000, 4), a.dt, a.steps)
        paths += 0.01 * torch.randn_like(paths)
        held = integrate(true_field, torch.randn(500, 4), a.dt, a.steps)
    field = VectorField()
    opt = torch.optim.Adam(field.parameters(), lr=1e-3)
    for epoch in range(a.epochs):
        t0 = time.time()
        losses = []
        for sel in torch.randperm(len(paths)).split(a.batch):
            truth = paths[sel]
            pred = integrate(field, truth[:, 0], a.dt, a.steps)
            loss = (pred - truth).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            if len(losses) % 14 == 0:
                print(f"epoch {epoch} batch {len(losses)} loss {losses[-1]:.5f} field calls {field.calls}", flush=True)
        with torch.no_grad():
            err = (integrate(field, held[:, 0], a.dt, a.steps) - held).square().mean().sqrt()
        print(f"epoch {epoch} mean loss {sum(losses) / len(losses):.5f} held-out rmse {err.item():.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
