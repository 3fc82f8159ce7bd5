#!/usr/bin/env python
"""Small transformer on ship logs (text files, characters), with gradient accumulation."""
import math
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CTX, MICRO, ACCUM, STEPS = 128, 8, 4, 160


def prepare(folder):
    """Writes the logs and one flat file of token numbers, like nanoGPT's prepare.py."""
    rng = random.Random(3)
    words = "wind ne sw fresh gale calm course knots fathoms sounding reefed topsail bore hands hold casks beef hail".split()
    for k in range(12):
        lines = [f"{rng.randint(1, 30)} June: " + " ".join(rng.choices(words, k=9)) + "." for _ in range(1200)]
        (folder / f"log_{k:02d}.txt").write_text("\n".join(lines))
    text = "\n".join(p.read_text() for p in sorted(folder.glob("log_*.txt")))
    chars = sorted(set(text))
    lookup = {c: i for i, c in enumerate(chars)}
    np.array([lookup[c] for c in text], dtype=np.uint16).tofile(folder / "tokens.bin")
    return len(chars)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class LogModel(nn.Module):
    def __init__(self, vocab, d=128, layers=3, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def get_batch(tokens, n):
    starts = np.random.randint(0, len(tokens) - CTX - 1, n)
    x = torch.stack([torch.from_numpy(tokens[s:s + CTX].astype(np.int64)) for s in starts])
    y = torch.stack([torch.from_numpy(tokens[s + 1:s + CTX + 1].astype(np.int64)) for s in starts])
    return x, y


def lr_at(step):
    if step < 20:
        return 1e-3 * (step + 1) / 20
    return 1e-4 + 0.45e-3 * (1 + math.cos(math.pi * (step - 20) / (STEPS - 20)))


def main():
    torch.manual_seed(3)
    np.random.seed(3)
    folder = Path(tempfile.mkdtemp(prefix="ship_logs_"))
    vocab = prepare(folder)
    tokens = np.memmap(folder / "tokens.bin", dtype=np.uint16, mode="r")
    train, val = tokens[:-40_000], tokens[-40_000:]
    model = LogModel(vocab)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    tic = time.time()
    for step in range(STEPS):
        for group in opt.param_groups:
            group["lr"] = lr_at(step)
        opt.zero_grad()
        total = 0.0
        for _ in range(ACCUM):
            x, y = get_batch(train, MICRO)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / ACCUM
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {total:.3f} {time.time() - tic:.1f}s")
        if step % 80 == 79:
            with torch.no_grad():
                x, y = get_batch(val, 32)
                print(f"step {step} val {F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item():.3f}")


if __name__ == "__main__":
    main()
