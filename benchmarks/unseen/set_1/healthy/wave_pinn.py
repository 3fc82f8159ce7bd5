"""Physics-informed network for the damped wave equation u_tt + 0.1 u_t = c(x)^2 u_xx on the unit interval."""
import argparse
import math
import time
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Options:
    width: int = 128
    depth: int = 4
    batch: int = 1024
    steps: int = 40
    lr: float = 1e-3
    epochs: int = 26


class Fourier(nn.Module):
    def __init__(self, size, scale=2.0):
        super().__init__()
        self.register_buffer("b", scale * torch.randn(2, size))

    def forward(self, xt):
        z = xt @ self.b
        return torch.cat([z.sin(), z.cos()], dim=-1)


class WaveNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        layers = [Fourier(o.width // 2)]
        for _ in range(o.depth):
            layers += [nn.Linear(o.width, o.width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(o.width, 1))

    def forward(self, xt):
        x = xt[:, :1]
        return x * (1 - x) * self.net(xt)


def derivative(u, xt):
    return torch.autograd.grad(u, xt, torch.ones_like(u), create_graph=True)[0]


def residual(model, xt):
    xt = xt.requires_grad_(True)
    u = model(xt)
    first = derivative(u, xt)
    ux, ut = first[:, :1], first[:, 1:]
    uxx = derivative(ux, xt)[:, :1]
    utt = derivative(ut, xt)[:, 1:]
    speed = 1 + 0.5 * xt[:, :1].detach()
    return utt + 0.1 * ut - speed ** 2 * uxx


def initial(model, x):
    xt = torch.cat([x, torch.zeros_like(x)], 1).requires_grad_(True)
    u = model(xt)
    ut = derivative(u, xt)[:, 1:]
    return (u - torch.sin(math.pi * x)).square().mean() + ut.square().mean()


class Log:
    def __init__(self):
        self.rows = []

    def add(self, *values):
        self.rows.append(torch.stack(values))

    def close(self):
        mean = torch.stack(self.rows).mean(0).tolist()
        self.rows.clear()
        return mean


def main():
    o = Options()
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=o.epochs)
    o.epochs = ap.parse_args().epochs
    torch.manual_seed(0)
    model, log = WaveNet(o), Log()
    opt = torch.optim.Adam(model.parameters(), lr=o.lr)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 3 * o.lr, total_steps=o.epochs * o.steps)
    for epoch in range(o.epochs):
        start = time.perf_counter()
        points = torch.rand(o.steps, o.batch, 2)
        edge = torch.rand(o.steps, o.batch // 8, 1)
        for xt, x0 in zip(points, edge):
            pde = residual(model, xt).square().mean()
            ic = initial(model, x0)
            loss = pde + 50 * ic
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            plan.step()
            log.add(pde.detach(), ic.detach())
        pde, ic = log.close()
        print(f"epoch {epoch}: pde {pde:.5f} initial {ic:.5f} [{time.perf_counter() - start:.2f}s]")


if __name__ == "__main__":
    main()
