"""
Self-supervised embeddings for mass spectra (VICReg). No labels, so we watch the rank of the
embedding to see whether it collapses (RankMe, https://arxiv.org/abs/2210.02885).
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BINS = 256


def simulate_spectra(n, seed):
    rng = np.random.default_rng(seed)
    centres = rng.integers(4, BINS - 4, (40, 12))          # 40 compounds, 12 peaks each
    heights = rng.gamma(2.0, 1.0, (40, 12))
    which = rng.integers(0, 40, n)
    spec = np.abs(rng.normal(0, 0.05, (n, BINS)))
    for p in range(12):
        spec[np.arange(n), centres[which, p]] += heights[which, p] * rng.lognormal(0, 0.3, n)
    return torch.tensor(np.sqrt(spec), dtype=torch.float32)


def view(x):
    keep = (torch.rand_like(x) > 0.15).float()
    shift = int(torch.randint(-1, 2, (1,)))
    return torch.roll(x * keep, shift, dims=1) + 0.03 * torch.randn_like(x)


def off_diagonal(m):
    n = m.shape[0]
    return m.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


def vicreg(za, zb, inv=25.0, var=25.0, cov=1.0):
    sim = F.mse_loss(za, zb)
    std = sum(F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean() for z in (za, zb))
    c = 0.0
    for z in (za, zb):
        z = z - z.mean(0)
        m = (z.T @ z) / (len(z) - 1)
        c = c + off_diagonal(m).pow(2).sum() / z.shape[1]
    return inv * sim + var * std / 2 + cov * c


class Net(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(BINS, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, dim))
        self.projector = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, 192))

    def forward(self, x):
        return self.projector(self.backbone(x))


@torch.no_grad()
def rank_me(net, x):
    net.eval()
    z = net.backbone(x).double().numpy()
    net.train()
    _, s, _ = np.linalg.svd(z - z.mean(0))  # <<
    p = s / s.sum() + 1e-12
    return float(np.exp(-(p * np.log(p)).sum()))


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=14)
    cli.add_argument("--batch-size", type=int, default=120)
    cfg = cli.parse_args()

    torch.manual_seed(1)
    spectra = simulate_spectra(3000, seed=1)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    for epoch in range(cfg.epochs):
        total, n = 0.0, 0
        for idx in torch.randperm(len(spectra)).split(cfg.batch_size):
            x = spectra[idx]
            loss = vicreg(net(view(x)), net(view(x)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            n += 1
        rank = rank_me(net, spectra)  # <<
        print(f"epoch {epoch:2d}  vicreg {total / n:.3f}  rankme {rank:.1f}")
