"""PINN for cooling of a steel slab, 2D + time, temperature dependent conductivity (unknown slope `beta`
is identified from 200 noisy thermocouple readings).

    T_t = d/dx(k(T) T_x) + d/dy(k(T) T_y),   k(T) = 0.1 (1 + beta T)
"""
import argparse
import math

import torch
import torch.nn as nn


class FourierNet(nn.Module):
    def __init__(self, width=64, depth=3, n_freq=12):
        super().__init__()
        self.register_buffer("freq", torch.randn(3, n_freq) * 1.5)
        layers, d = [], 2 * n_freq
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.Tanh()]
            d = width
        layers.append(nn.Linear(d, 1))
        self.mlp = nn.Sequential(*layers)

    def forward(self, p):
        z = p @ self.freq
        return self.mlp(torch.cat([z.sin(), z.cos()], 1))


def grad(out, inp):
    return torch.autograd.grad(out.sum(), inp, create_graph=True)[0]


def residual(net, beta, pts):
    pts = pts.requires_grad_(True)
    temp = net(pts)
    first = grad(temp, pts)
    k = 0.1 * (1 + beta * temp)
    flux = k * first[:, :2]
    div = grad(flux[:, 0], pts)[:, 0] + grad(flux[:, 1], pts)[:, 1]
    return first[:, 2] - div


def initial_temp(xy):
    return torch.sin(math.pi * xy[:, :1]) * torch.sin(math.pi * xy[:, 1:2])


def boundary_points(n):
    p = torch.rand(n, 3)
    side = torch.randint(0, 4, (n,))
    p[side == 0, 0] = 0.0
    p[side == 1, 0] = 1.0
    p[side == 2, 1] = 0.0
    p[side == 3, 1] = 1.0
    return p


def thermocouples(n):
    p = torch.rand(n, 3)
    decay = torch.exp(-2 * 0.1 * 1.25 * math.pi ** 2 * p[:, 2:])   # rough stand-in for the lab data
    return p, initial_temp(p) * decay + 0.005 * torch.randn(n, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=1200)
    ap.add_argument("--interior", type=int, default=1000)
    args = ap.parse_args()
    torch.manual_seed(55)
    net = FourierNet()
    beta = nn.Parameter(torch.zeros(1))
    opt = torch.optim.Adam([{"params": net.parameters()}, {"params": [beta], "lr": 5e-3}], lr=1e-3)
    probe, reading = thermocouples(200)

    for it in range(1, args.iters + 1):
        res = residual(net, beta, torch.rand(args.interior, 3))
        b = boundary_points(200)
        p0 = torch.rand(200, 3)
        p0[:, 2] = 0
        pred = net(torch.cat([b, p0, probe]))
        loss_pde = res.pow(2).mean()
        loss_bc = pred[:200].pow(2).mean()
        loss_ic = (pred[200:400] - initial_temp(p0)).pow(2).mean()
        loss_data = (pred[400:] - reading).pow(2).mean()
        loss = loss_pde + 5 * loss_bc + 10 * loss_ic + 10 * loss_data
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 100 == 0:
            print(f"{it:5d} pde {loss_pde.item():.2e} bc {loss_bc.item():.2e} ic {loss_ic.item():.2e} "
                  f"data {loss_data.item():.2e} beta {beta.item():+.3f}")


if __name__ == "__main__":
    main()
