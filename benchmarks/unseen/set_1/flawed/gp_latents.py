"""Sequence VAE with a Gaussian process prior over every latent channel (GP-VAE, diagonal posterior)."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RationalQuadratic(nn.Module):
    def __init__(self, lengthscale, alpha=1.0, jitter=1e-3):
        super().__init__()
        self.lengthscale, self.alpha, self.jitter = lengthscale, alpha, jitter

    def forward(self, t):
        sq = (t[:, None] - t[None, :]).pow(2)
        k = (1 + sq / (2 * self.alpha * self.lengthscale ** 2)).pow(-self.alpha)  # <<
        return k + self.jitter * torch.eye(len(t), dtype=t.dtype)


class GPPrior(nn.Module):
    """KL( N(mean, diag var) || GP ) on a regular grid of time points."""

    def __init__(self, steps, lengthscales):
        super().__init__()
        self.register_buffer("grid", torch.linspace(0, 1, steps, dtype=torch.float64))
        self.kernels = nn.ModuleList(RationalQuadratic(s) for s in lengthscales)

    def channel_stats(self, kernel):
        cov = kernel(self.grid)  # <<
        precision = torch.linalg.inv(cov)  # <<
        logdet = torch.linalg.slogdet(cov)[1]  # <<
        return precision.float(), logdet.float()

    def forward(self, mean, logvar):
        kl = 0.0
        for c, kernel in enumerate(self.kernels):
            precision, logdet = self.channel_stats(kernel)  # <<
            m, lv = mean[:, c], logvar[:, c]
            quad = ((m @ precision) * m).sum(-1)
            trace = (lv.exp() * precision.diagonal()).sum(-1)
            kl = kl + 0.5 * (quad + trace + logdet - lv.sum(-1) - m.shape[-1])
        return kl.mean()


class Encoder(nn.Module):
    def __init__(self, observed, latent, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(observed, width, 7, padding=3), nn.SiLU(),
            nn.Conv1d(width, width, 7, padding=3), nn.SiLU(),
            nn.Conv1d(width, width, 7, padding=3), nn.SiLU(),
        )
        self.mean = nn.Conv1d(width, latent, 1)
        self.logvar = nn.Conv1d(width, latent, 1)

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), self.logvar(h) - 3.0


class Decoder(nn.Sequential):
    def __init__(self, observed, latent, width):
        super().__init__(
            nn.Conv1d(latent, width, 5, padding=2), nn.SiLU(),
            nn.Conv1d(width, width, 5, padding=2), nn.SiLU(),
            nn.Conv1d(width, observed, 1),
        )


class GPVAE(nn.Module):
    def __init__(self, observed, steps, lengthscales, width=40):
        super().__init__()
        latent = len(lengthscales)
        self.encoder = Encoder(observed, latent, width)
        self.decoder = Decoder(observed, latent, width)
        self.prior = GPPrior(steps, lengthscales)
        self.log_noise = nn.Parameter(torch.tensor(-1.0))

    def elbo(self, x, beta):
        mean, logvar = self.encoder(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        recon = self.decoder(z)
        var = (2 * self.log_noise).exp()
        nll = 0.5 * ((x - recon).pow(2) / var + 2 * self.log_noise + math.log(2 * math.pi))
        nll = nll.sum((1, 2)).mean()
        kl = self.prior(mean, logvar)
        return nll + beta * kl, nll.detach(), kl.detach()


def physiological(count, observed, steps, gen):
    """Slow oscillations seen through a random mixing matrix."""
    t = torch.linspace(0, 1, steps)
    freq = 1 + 5 * torch.rand(count, 4, 1, generator=gen)
    phase = 2 * math.pi * torch.rand(count, 4, 1, generator=gen)
    sources = torch.sin(2 * math.pi * freq * t + phase)
    mixing = torch.randn(observed, 4, generator=gen)
    return mixing @ sources + 0.3 * torch.randn(count, observed, steps, generator=gen)


def run(epochs):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    observed, steps = 16, 320
    data = physiological(1280, observed, steps, gen)
    model = GPVAE(observed, steps, lengthscales=[0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        begin = time.perf_counter()
        beta = min(1.0, 0.2 + 0.1 * epoch)
        sums = torch.zeros(2)
        order = torch.randperm(len(data), generator=gen).split(32)
        for index in order:
            loss, nll, kl = model.elbo(data[index], beta)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 500.0)
            opt.step()
            sums += torch.stack([nll, kl])
        nll, kl = (sums / len(order)).tolist()
        print(f"[{epoch}] nll {nll:9.2f} kl {kl:8.2f} took {time.perf_counter() - begin:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=18)
    run(parser.parse_args().epochs)
