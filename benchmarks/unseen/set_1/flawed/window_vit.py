"""Shifted-window transformer on small images (after Liu et al. 2021), trained from scratch."""
import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image: int = 64
    patch: int = 4
    dim: int = 32
    heads: int = 2
    window: int = 8
    depth: int = 4
    classes: int = 20
    batch: int = 4
    steps: int = 100
    lr: float = 1e-3


def partition(x, w):
    b, h, wd, c = x.shape
    x = x.view(b, h // w, w, wd // w, w, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def merge(x, w, h, wd):
    b = x.shape[0] // ((h // w) * (wd // w))
    x = x.view(b, h // w, wd // w, w, w, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(b, h, wd, -1)


def relative_index(w):
    """Index into the bias table for every pair of positions of a window."""
    rows = []
    for q in range(w * w):
        row = []
        for k in range(w * w):
            dy, dx = q // w - k // w, q % w - k % w  # <<
            row.append((dy + w - 1) * (2 * w - 1) + dx + w - 1)  # <<
        rows.append(row)
    return torch.tensor(rows)  # <<


def shift_mask(h, wd, w, shift):
    """Minus infinity between positions that were not neighbours before the roll."""
    region = torch.zeros(1, h, wd, 1)
    cuts = (slice(0, -w), slice(-w, -shift), slice(-shift, None))
    count = 0
    for rows in cuts:
        for cols in cuts:
            region[:, rows, cols] = count
            count += 1
    region = partition(region, w).squeeze(-1)
    diff = region.unsqueeze(1) - region.unsqueeze(2)
    return torch.zeros_like(diff).masked_fill_(diff != 0, float("-inf"))


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.02)

    def position_bias(self):
        n = self.window * self.window
        index = relative_index(self.window)  # <<
        return self.table.index_select(0, index.view(-1)).view(n, n, self.heads).permute(2, 0, 1)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn + self.position_bias()  # <<
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.view(b // windows, windows, self.heads, n, n) + mask.unsqueeze(1)
            attn = attn.view(b, self.heads, n, n)
        x = attn.softmax(-1) @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, cfg, shift):
        super().__init__()
        self.w, self.shift = cfg.window, shift
        self.norm1 = nn.LayerNorm(cfg.dim)
        self.attn = WindowAttention(cfg.dim, cfg.heads, cfg.window)
        self.norm2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, cfg.dim * 3), nn.GELU(), nn.Linear(cfg.dim * 3, cfg.dim))
        side = cfg.image // cfg.patch
        self.register_buffer("mask", shift_mask(side, side, self.w, shift) if shift else None, persistent=False)

    def forward(self, x):
        b, h, wd, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = merge(self.attn(partition(y, self.w), self.mask), self.w, h, wd)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class WindowViT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Conv2d(3, cfg.dim, cfg.patch, cfg.patch)
        self.blocks = nn.ModuleList(Block(cfg, 0 if i % 2 == 0 else cfg.window // 2) for i in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x).mean((1, 2)))


def make_data(cfg, n):
    g = torch.Generator().manual_seed(3)
    y = torch.randint(0, cfg.classes, (n,), generator=g)
    base = torch.randn(cfg.classes, 3, 8, 8, generator=g)
    x = F.interpolate(base, size=cfg.image, mode="bilinear")[y]
    return x + torch.randn(x.shape, generator=g), y


def train(cfg, epochs):
    torch.manual_seed(0)
    x, y = make_data(cfg, cfg.batch * cfg.steps)
    net = WindowViT(cfg)
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=cfg.lr)
    for epoch in range(epochs):
        t = time.perf_counter()
        total = 0.0
        for idx in torch.randperm(len(x)).split(cfg.batch):
            loss = F.cross_entropy(net(x[idx]), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {float(total) / cfg.steps:.4f} in {time.perf_counter() - t:.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    train(Config(), parser.parse_args().epochs)
