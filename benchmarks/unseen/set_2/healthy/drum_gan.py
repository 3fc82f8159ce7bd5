"""A conditional GAN that draws drum-hit spectrograms (projection discriminator, hinge loss, two optimizers)."""
import argparse
import time
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

KINDS = ["kick", "snare", "hat", "tom", "clap"]
CL = torch.channels_last


def drum_hits(n, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(KINDS), n)
    f, t = np.arange(32, dtype=np.float32)[:, None], np.arange(32, dtype=np.float32)[None]
    out = np.empty((n, 1, 32, 32), np.float32)
    for i, k in enumerate(kind):
        decay = [9, 6, 3, 8, 4][k] * rng.uniform(0.8, 1.2)
        pitch = [3, 9, 26, 7, 16][k] + rng.normal(0, 0.8)
        spread = [1.5, 6, 4, 2, 5][k]
        drop = [2.5, 0, 0, 2, 0][k] * np.exp(-t / 3)
        body = np.exp(-0.5 * ((f - pitch - drop) / spread) ** 2) * np.exp(-t / decay)
        out[i, 0] = body * rng.uniform(0.8, 1.1) + rng.normal(0, 0.04, (32, 32)) * np.exp(-t / 12)
    return torch.from_numpy(out * 2 - 1).contiguous(memory_format=CL), torch.from_numpy(kind)


class Generator(nn.Module):
    def __init__(self, z=64, w=24):
        super().__init__()
        self.label = nn.Embedding(len(KINDS), 16)
        self.fc = nn.Linear(z + 16, 4 * w * 16)
        self.w4 = 4 * w

        def up(i, o):
            return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]

        self.net = nn.Sequential(*up(4 * w, 2 * w), *up(2 * w, w), nn.ConvTranspose2d(w, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z, y):
        h = self.fc(torch.cat([z, self.label(y)], 1)).view(-1, self.w4, 4, 4)
        return self.net(h.contiguous(memory_format=CL))


class Discriminator(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        sn = spectral_norm
        self.net = nn.Sequential(sn(nn.Conv2d(1, w, 4, 2, 1)), nn.LeakyReLU(0.2), sn(nn.Conv2d(w, 2 * w, 4, 2, 1)),
                                 nn.LeakyReLU(0.2), sn(nn.Conv2d(2 * w, 4 * w, 4, 2, 1)), nn.LeakyReLU(0.2))
        self.out = sn(nn.Linear(4 * w, 1))
        self.proj = nn.Embedding(len(KINDS), 4 * w)

    def forward(self, x, y):
        h = self.net(x).sum((2, 3)) / 4
        return self.out(h).squeeze(1) + (h * self.proj(y)).sum(1)


@contextmanager
def frozen(module):
    module.requires_grad_(False)
    yield
    module.requires_grad_(True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hits", type=int, default=6000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=7)
    p.add_argument("--z", type=int, default=64)
    a = p.parse_args()
    torch.manual_seed(4)
    real, kind = drum_hits(a.hits, 4)
    G, D = Generator(a.z).to(memory_format=CL), Discriminator().to(memory_format=CL)
    g_opt = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.0, 0.9), fused=True)
    d_opt = torch.optim.Adam(D.parameters(), 4e-4, betas=(0.0, 0.9), fused=True)
    probe_z, probe_y = torch.randn(50, a.z), torch.arange(50) % len(KINDS)
    for epoch in range(a.epochs):
        t0, d_sum, g_sum, n = time.time(), 0.0, 0.0, 0
        for idx in torch.randperm(len(real))[:len(real) // a.batch * a.batch].split(a.batch):
            x, y = real[idx], kind[idx]
            fake = G(torch.randn(len(x), a.z), y)

            on_real, on_fake = D(torch.cat([x, fake.detach()]), torch.cat([y, y])).chunk(2)
            d_loss = F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
            d_opt.zero_grad()
            d_loss.backward()
            d_opt.step()

            with frozen(D):
                g_loss = -D(fake, y).mean()
                g_opt.zero_grad()
                g_loss.backward()
                g_opt.step()

            d_sum, g_sum, n = d_sum + d_loss.item(), g_sum + g_loss.item(), n + 1
        with torch.no_grad():
            shots = G(probe_z, probe_y)
        centre = (shots + 1).clamp(min=0).mean(3).squeeze(1)
        pitch = (centre * torch.arange(32)).sum(1) / centre.sum(1)
        print(f"epoch {epoch}: D {d_sum / n:.3f} G {g_sum / n:.3f} | mean bin "
              + ", ".join(f"{k} {pitch[probe_y == j].mean():.1f}" for j, k in enumerate(KINDS))
              + f" | {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
