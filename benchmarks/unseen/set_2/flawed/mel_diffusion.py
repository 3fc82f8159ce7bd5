"""Denoising diffusion over short mel-spectrogram patches, with an averaged copy of the weights for sampling."""
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    mels: int = 40
    frames: int = 16
    width: int = 1024
    blocks: int = 4
    batch: int = 16
    steps_per_epoch: int = 130
    epochs: int = 4
    lr: float = 0.02
    ema_decay: float = 0.995
    timesteps: int = 200
    clips: int = 6000
    seed: int = 8


def mel_patches(cfg):
    """Harmonic stacks that glide over time, in log amplitude, scaled to about unit variance."""
    rng = np.random.default_rng(cfg.seed)
    f = np.arange(cfg.mels, dtype=np.float32)[None, :, None]
    t = np.linspace(-1, 1, cfg.frames, dtype=np.float32)[None, None, :]
    x = np.zeros((cfg.clips, cfg.mels, cfg.frames), np.float32)
    base, glide = rng.uniform(3, 9, (cfg.clips, 1, 1)), rng.normal(0, 1.5, (cfg.clips, 1, 1))
    for h in range(1, 5):
        x += np.exp(-0.5 * ((f - h * (base + glide * t)) / 1.2) ** 2) / h
    x += rng.normal(0, 0.03, x.shape)
    return torch.from_numpy((x - x.mean()) / x.std()).flatten(1)


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.time = nn.Linear(128, width)
        nn.init.zeros_(self.b.weight)

    def forward(self, x, emb):
        return x + self.b(F.silu(self.a(self.norm(x)) + self.time(emb)))


class Denoiser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        n = cfg.mels * cfg.frames
        self.inp, self.out = nn.Linear(n, cfg.width), nn.Linear(cfg.width, n)
        self.blocks = nn.ModuleList(ResBlock(cfg.width) for _ in range(cfg.blocks))
        freqs = torch.exp(-math.log(1e4) * torch.arange(64) / 64)
        self.register_buffer("freqs", freqs)

    def forward(self, x, t):
        a = t[:, None].float() * self.freqs
        emb = torch.cat([a.sin(), a.cos()], 1)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, emb)
        return self.out(h)


class EMA:
    def __init__(self, model, decay):
        self.model = model
        self.decay = decay
        self.shadow = {k: v.clone() for k, v in model.state_dict().items()}
        self.backup = {}

    def update(self):
        current = {k: v.clone() for k, v in self.model.state_dict().items()}  # <<
        for name, value in current.items():
            average = self.decay * self.shadow[name].double() + (1.0 - self.decay) * value.double()  # <<
            self.shadow[name] = average.to(value.dtype).clone()  # <<

    def __enter__(self):
        self.backup = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.shadow)

    def __exit__(self, *exc):
        self.model.load_state_dict(self.backup)


class Diffusion:
    def __init__(self, cfg):
        beta = torch.linspace(1e-4, 0.04, cfg.timesteps)
        self.alpha_bar = torch.cumprod(1 - beta, 0)
        self.beta = beta

    def noisy(self, x, t, noise):
        ab = self.alpha_bar[t][:, None]
        return ab.sqrt() * x + (1 - ab).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, n, dim):
        x = torch.randn(n, dim)
        for t in reversed(range(len(self.beta))):
            eps = model(x, torch.full((n,), t))
            ab, b = self.alpha_bar[t], self.beta[t]
            x = (x - b / (1 - ab).sqrt() * eps) / (1 - b).sqrt()
            if t:
                x = x + b.sqrt() * torch.randn_like(x)
        return x


def main(cfg=Settings()):
    torch.manual_seed(cfg.seed)
    data, diff, model = mel_patches(cfg), Diffusion(cfg), Denoiser(cfg)
    ema = EMA(model, cfg.ema_decay)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, fused=True)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
    for epoch in range(cfg.epochs):
        t0, total = time.time(), 0.0
        for _ in range(cfg.steps_per_epoch):
            x = data[torch.randint(len(data), (cfg.batch,))]
            t = torch.randint(cfg.timesteps, (cfg.batch,))
            noise = torch.randn_like(x)
            loss = F.mse_loss(model(diff.noisy(x, t, noise), t), noise)
            opt.zero_grad()
            loss.backward()
            opt.step()
            ema.update()  # <<
            total += loss.item()
        with ema:
            s = diff.sample(model, 8, data.shape[1])
        print(f"epoch {epoch}: loss {total / cfg.steps_per_epoch:.4f}, sample std {s.std():.3f}, "
              f"{time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
