"""Spectrally normalised GAN with hinge loss on synthetic textures."""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


def spectrally_normalised(module):
    """Keeps the layer's largest singular value at one (Miyato et al. 2018)."""
    raw = module.weight
    del module._parameters["weight"]
    module.register_parameter("weight_raw", raw)
    module.weight = raw.data

    def normalise(mod, inputs):
        w = mod.weight_raw
        with torch.no_grad():
            sigma = torch.linalg.matrix_norm(w.flatten(1), ord=2)  # <<
        mod.weight = w / sigma

    module.register_forward_pre_hook(normalise)  # <<
    return module


def generator(z_dim, ch):
    def up(cin, cout):
        return [nn.ConvTranspose2d(cin, cout, 4, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True)]

    return nn.Sequential(
        nn.Unflatten(1, (z_dim, 1, 1)),
        nn.ConvTranspose2d(z_dim, ch * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ch * 4), nn.ReLU(True),
        *up(ch * 4, ch * 2), *up(ch * 2, ch),
        nn.ConvTranspose2d(ch, 3, 4, 2, 1), nn.Tanh(),
    )


def discriminator(ch):
    sn = spectrally_normalised
    act = nn.LeakyReLU(0.1)
    return nn.Sequential(
        sn(nn.Conv2d(3, ch, 4, 2, 1)), act,
        sn(nn.Conv2d(ch, ch * 2, 4, 2, 1)), act,
        sn(nn.Conv2d(ch * 2, ch * 4, 4, 2, 1)), act,
        nn.Flatten(),
        sn(nn.Linear(ch * 4 * 16, 1)),
    )


def textures(n, size=32):
    g = torch.Generator().manual_seed(11)
    grid = torch.linspace(0, 2 * math.pi, size)
    fx, fy = torch.rand(2, n, 3, 1, 1, generator=g) * 4 + 1
    phase = torch.rand(n, 3, 1, 1, generator=g) * 2 * math.pi
    return torch.sin(fx * grid.view(1, 1, 1, -1) + fy * grid.view(1, 1, -1, 1) + phase)


def set_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


def make_step(G, D, g_opt, d_opt, z_dim):
    """Returns a function that does one update of D and one of G."""

    def step(real):
        n = len(real)
        set_grad(D, True)
        with torch.no_grad():
            fake = G(torch.randn(n, z_dim))
        d_loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake)).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()

        set_grad(D, False)
        g_loss = -D(G(torch.randn(n, z_dim))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        return d_loss.detach(), g_loss.detach()

    return step


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=18)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--channels", type=int, default=32)
    ap.add_argument("--z", type=int, default=64)
    a = ap.parse_args()
    torch.manual_seed(0)
    data = textures(a.batch * 50)
    G, D = generator(a.z, a.channels), discriminator(a.channels)
    g_opt = torch.optim.Adam(G.parameters(), 2e-4, (0.0, 0.9))
    d_opt = torch.optim.Adam(D.parameters(), 2e-4, (0.0, 0.9))
    step = make_step(G, D, g_opt, d_opt, a.z)
    for epoch in range(a.epochs):
        t0 = time.time()
        sums = torch.zeros(2)
        for idx in torch.randperm(len(data)).split(a.batch):
            sums += torch.stack(step(data[idx]))
        d, g = (sums / 50).tolist()
        print(f"{epoch:3d}  D {d:.3f}  G {g:.3f}  {time.time() - t0:.2f}s", flush=True)


if __name__ == "__main__":
    main()
