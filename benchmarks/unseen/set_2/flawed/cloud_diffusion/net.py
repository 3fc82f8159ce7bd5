import math

import torch
from torch import nn


def time_embedding(t, dim):
    freq = torch.exp(-math.log(10000.0) * torch.arange(dim // 2) / (dim // 2))
    angle = t[:, None].float() * freq
    return torch.cat([angle.sin(), angle.cos()], 1)


class Residual(nn.Module):
    def __init__(self, width, emb):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.shift = nn.Linear(emb, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h, e):
        z = self.norm(h) + self.shift(e)
        return h + self.down(nn.functional.silu(self.up(z)))


class PointDenoiser(nn.Module):
    """Denoises a cloud of points, each attended to through the cloud's mean."""

    def __init__(self, width=48, blocks=10, emb=32):
        super().__init__()
        self.emb = emb
        self.inp = nn.Linear(3, width)
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU())
        self.blocks = nn.ModuleList(Residual(width, emb) for _ in range(blocks))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.out = nn.Linear(width, 3)

    def forward(self, x, t):
        e = self.time(time_embedding(t, self.emb)).unsqueeze(1)
        h = self.inp(x)
        for block, mix in zip(self.blocks, self.mix):
            h = block(h, e)
            h = h + mix(h.mean(1, keepdim=True))
        return self.out(h)
