"""Denoising diffusion of surface temperature anomalies over a tundra grid (24 x 24, 2 variables)."""
import math
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass
class UNetConfig:
    channels: int = 32
    mults: tuple = (1, 2)
    blocks: int = 2
    use_checkpoint: bool = True  # <<


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    a = t[:, None].float() * freqs[None]
    return torch.cat([a.cos(), a.sin()], -1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb, use_checkpoint):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.n1, self.c1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.n2, self.c2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        if self.use_checkpoint and self.training:
            return checkpoint(self._forward, x, emb, use_reentrant=False)  # <<
        return self._forward(x, emb)

    def _forward(self, x, emb):
        h = self.c1(F.silu(self.n1(x))) + self.emb(F.silu(emb))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class UNet(nn.Module):
    def __init__(self, cfg, in_channels=2):
        super().__init__()
        c, emb = cfg.channels, 4 * cfg.channels
        self.dim = c
        self.time = nn.Sequential(nn.Linear(c, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(in_channels, c, 3, padding=1)
        self.down = nn.ModuleList()
        skips, now = [], c
        for m in cfg.mults:
            for _ in range(cfg.blocks):
                self.down.append(ResBlock(now, c * m, emb, cfg.use_checkpoint))
                now = c * m
                skips.append(now)
        self.per_level = cfg.blocks
        self.mid = ResBlock(now, now, emb, cfg.use_checkpoint)
        self.up = nn.ModuleList()
        for m in reversed(cfg.mults):
            for _ in range(cfg.blocks):
                self.up.append(ResBlock(now + skips.pop(), c * m, emb, cfg.use_checkpoint))
                now = c * m
        self.out = nn.Sequential(nn.GroupNorm(8, now), nn.SiLU(), nn.Conv2d(now, in_channels, 3, padding=1))

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.dim))
        h, stack = self.stem(x), []
        for i, block in enumerate(self.down):
            if i and i % self.per_level == 0:
                h = F.avg_pool2d(h, 2)
            h = block(h, emb)
            stack.append(h)
        h = self.mid(h, emb)
        for i, block in enumerate(self.up):
            skip = stack.pop()
            if h.shape[-1] != skip.shape[-1]:
                h = F.interpolate(h, scale_factor=2)
            h = block(torch.cat([h, skip], 1), emb)
        return self.out(h)


def anomalies(n, seed):
    g = torch.Generator().manual_seed(seed)
    low = torch.randn(n, 2, 5, 5, generator=g)
    x = F.interpolate(low, size=24, mode="bicubic", align_corners=True)
    x[:, 1] = 0.7 * x[:, 0] + 0.3 * x[:, 1]
    return x


def main():
    torch.manual_seed(0)
    data = anomalies(1024, 0)
    betas = torch.linspace(1e-4, 0.02, 1000)
    abar = torch.cumprod(1 - betas, 0)
    net = UNet(UNetConfig()).to(memory_format=torch.channels_last)
    ema = {k: v.clone() for k, v in net.state_dict().items()}
    opt = torch.optim.AdamW(net.parameters(), lr=2e-4)
    for epoch in range(2):
        t0, total = time.time(), 0.0
        for i, sel in enumerate(torch.randperm(len(data)).split(16), 1):
            x0 = data[sel].contiguous(memory_format=torch.channels_last)
            t = torch.randint(0, 1000, (len(x0),))
            a = abar[t].view(-1, 1, 1, 1)
            eps = torch.randn_like(x0)
            loss = F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
            opt.zero_grad()
            loss.backward()  # <<
            opt.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(ema.values()), list(net.state_dict().values()), 0.005)
            total += loss.item()
            if i % 16 == 0:
                print(f"epoch {epoch} step {i} loss {total / i:.4f}", flush=True)
        print(f"epoch {epoch} done in {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
