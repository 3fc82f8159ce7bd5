"""WGAN-GP that learns to draw stellar spectra (256 wavelength bins)."""
import time

import torch
from torch import nn

BINS, LATENT, LAMBDA, N_CRITIC = 256, 32, 10.0, 5


def spectra(n, seed):
    g = torch.Generator().manual_seed(seed)
    wave = torch.linspace(0.35, 1.0, BINS)
    temp = 3000 + 9000 * torch.rand(n, 1, generator=g)
    planck = wave ** -5 / (torch.exp(14388.0 / (wave * temp)) - 1)
    planck = planck / planck.amax(1, keepdim=True)
    for line in (0.3934, 0.4341, 0.4861, 0.5175, 0.5892, 0.6563):
        depth = 0.6 * torch.rand(n, 1, generator=g)
        planck = planck * (1 - depth * torch.exp(-((wave - line) / 0.004) ** 2))
    return 2 * planck - 1 + 0.02 * torch.randn(n, BINS, generator=g)


def mlp(i, o, hidden, act):
    return nn.Sequential(nn.Linear(i, hidden), act(), nn.Linear(hidden, hidden), act(), nn.Linear(hidden, hidden), act(), nn.Linear(hidden, o))


def gradient_penalty(critic, real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return (grad.norm(2, dim=1) - 1).square().mean()


def endless(data, size):
    while True:
        for sel in torch.randperm(len(data)).split(size):
            if len(sel) == size:
                yield data[sel]


def main(generator_steps=120, batch=256):
    torch.manual_seed(0)
    data = spectra(20000, 0)
    stream = endless(data, batch)
    G = mlp(LATENT, BINS, 512, nn.ReLU)
    D = mlp(BINS, 1, 512, lambda: nn.LeakyReLU(0.2))
    optG = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True)
    optD = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True)
    t0 = time.time()
    for step in range(1, generator_steps + 1):
        D.requires_grad_(True)
        for _ in range(N_CRITIC):
            real = next(stream)
            with torch.no_grad():
                fake = G(torch.randn(batch, LATENT))
            gap = D(real).mean() - D(fake).mean()
            loss_d = -gap + LAMBDA * gradient_penalty(D, real, fake)
            optD.zero_grad()
            loss_d.backward()
            optD.step()
        D.requires_grad_(False)
        loss_g = -D(G(torch.randn(batch, LATENT))).mean()
        optG.zero_grad()
        loss_g.backward()
        optG.step()
        if step % 10 == 0:
            print(f"generator step {step} wasserstein {gap.item():.3f} G {loss_g.item():.3f} {time.time() - t0:.1f}s", flush=True)
    with torch.no_grad():
        sample = G(torch.randn(1000, LATENT))
    print("mean spectrum error", (sample.mean(0) - data.mean(0)).abs().mean().item())


if __name__ == "__main__":
    main()
