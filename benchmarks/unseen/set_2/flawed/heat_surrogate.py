"""DeepONet for the 1-d heat equation with a varying conductivity, trained with a Kronecker-factored
(Shampoo-like) optimizer."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer


@dataclass
class Settings:
    sensors: int = 64
    samples: int = 4000
    queries: int = 16
    width: int = 128
    depth: int = 3
    batch: int = 64
    epochs: int = 12
    lr: float = 2e-3
    statistics_every: int = 10
    seed: int = 4


class Shampoo(Optimizer):
    """Preconditions matrices by L^-1/4 G R^-1/4 and other tensors by Adagrad; grafts the gradient's norm."""

    def __init__(self, params, lr=1e-3, beta=0.95, momentum=0.9, eps=1e-4, statistics_every=1):
        super().__init__(params, dict(lr=lr, beta=beta, momentum=momentum, eps=eps,
                                      statistics_every=statistics_every))

    @staticmethod
    def inverse_root(m, eps, power=-0.25):
        vals, vecs = torch.linalg.eigh(m + eps * m.diagonal().mean() * torch.eye(len(m)))  # <<
        return (vecs * vals.clamp(min=1e-12) ** power) @ vecs.T

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g, st = p.grad, self.state[p]
                if not st:
                    st["t"] = 0
                    st["mom"] = torch.zeros_like(p)
                    if p.ndim == 2:
                        st["L"], st["R"] = torch.eye(p.shape[0]) * 1e-6, torch.eye(p.shape[1]) * 1e-6
                    else:
                        st["sq"] = torch.full_like(p, 1e-8)
                if p.ndim == 2:
                    if st["t"] % group["statistics_every"] == 0:
                        st["L"].lerp_(g @ g.T, 1 - group["beta"])
                        st["R"].lerp_(g.T @ g, 1 - group["beta"])
                    left = self.inverse_root(st["L"], group["eps"])  # <<
                    right = self.inverse_root(st["R"], group["eps"])  # <<
                    d = left @ g @ right
                else:
                    st["sq"].lerp_(g * g, 1 - group["beta"])
                    d = g / st["sq"].sqrt()
                d = d * (p.numel() ** 0.5 / (d.norm() + 1e-12))
                st["mom"].mul_(group["momentum"]).add_(d)
                p.add_(st["mom"], alpha=-group["lr"])
                st["t"] += 1


def mlp(sizes):
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o), nn.GELU()]
    return nn.Sequential(*layers[:-1])


class DeepONet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        hidden = [cfg.width] * cfg.depth
        self.branch = mlp([2 * cfg.sensors, *hidden, cfg.width])
        self.trunk = mlp([2, *hidden, cfg.width])
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, functions, points):
        return torch.einsum("bk,bqk->bq", self.branch(functions), self.trunk(points)) / 10 + self.bias


def solve_many(cfg):
    """Explicit finite differences for all samples at once."""
    rng = np.random.default_rng(cfg.seed)
    x = np.linspace(0, 1, cfg.sensors)
    modes = np.sin(np.pi * np.arange(1, 7)[:, None] * x)
    u0 = (rng.normal(size=(cfg.samples, 6)) / np.arange(1, 7)) @ modes
    kappa = 0.1 + 0.4 * rng.random((cfg.samples, 1)) * (1 + 0.5 * np.sin(2 * np.pi * (x + rng.random((cfg.samples, 1)))))
    dx, dt, steps = x[1], 1e-4, 800
    u, frames = u0.copy(), [u0]
    face = 0.5 * (kappa[:, 1:] + kappa[:, :-1])
    for k in range(steps):
        flux = face * np.diff(u, axis=1) / dx
        u[:, 1:-1] += dt * np.diff(flux, axis=1) / dx
        if (k + 1) % 40 == 0:
            frames.append(u.copy())
    functions = np.concatenate([u0, kappa], 1).astype(np.float32)
    return torch.from_numpy(functions), torch.from_numpy(np.stack(frames, 1).astype(np.float32))


def main(cfg=Settings()):
    torch.manual_seed(cfg.seed)
    functions, fields = solve_many(cfg)
    n, frames, sensors = fields.shape
    net = DeepONet(cfg)
    opt = Shampoo(net.parameters(), lr=cfg.lr, statistics_every=cfg.statistics_every)
    for epoch in range(cfg.epochs):
        t0, total, count = time.time(), 0.0, 0
        for g in opt.param_groups:
            g["lr"] = cfg.lr * 0.8 ** epoch
        for rows in torch.randperm(n).split(cfg.batch):
            it = torch.randint(frames, (len(rows), cfg.queries))
            ix = torch.randint(sensors, (len(rows), cfg.queries))
            points = torch.stack([it / (frames - 1), ix / (sensors - 1)], -1)
            target = fields[rows[:, None], it, ix]
            loss = (net(functions[rows], points) - target).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()  # <<
            total += loss.item()
            count += 1
            if count % 20 == 0:
                print(f"  {epoch}:{count:3d} mse {total / count:.5f}")
        print(f"epoch {epoch} mse {total / count:.5f} in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
