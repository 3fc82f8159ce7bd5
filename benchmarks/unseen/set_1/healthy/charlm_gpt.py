"""Character GPT with gradient accumulation, clipping, weight decay groups and a rare checkpoint."""
import argparse
import math
import os
import random
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    block: int = 96
    dim: int = 160
    heads: int = 5
    depth: int = 3
    batch: int = 8
    accumulate: int = 2
    updates: int = 20
    lr: float = 8e-4


def write_text(n_chars, seed):
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "ren", "tas", "vo", "ul", "shi", "qua", "ber", "ny", "do"]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(400)]
    out, size = [], 0
    while size < n_chars:
        words = rng.choices(lexicon, k=rng.randint(4, 12))
        line = " ".join(words).capitalize() + ".\n"
        out.append(line)
        size += len(line)
    return "".join(out)[:n_chars]


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.n1, self.n2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.qkv = nn.Linear(c.dim, 3 * c.dim, bias=False)
        self.o = nn.Linear(c.dim, c.dim, bias=False)
        self.up = nn.Linear(c.dim, 4 * c.dim)
        self.down = nn.Linear(4 * c.dim, c.dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, c, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, c.dim)
        self.pos = nn.Embedding(c.block, c.dim)
        self.layers = nn.Sequential(*[Layer(c) for _ in range(c.depth)])
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, vocab, bias=False)
        self.register_buffer("places", torch.arange(c.block))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.layers(self.tok(ids) + self.pos(self.places))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    epochs = ap.parse_args().epochs
    c = GPTConfig()
    torch.manual_seed(0)
    text = write_text(200_000, seed=0)
    chars = sorted(set(text))
    lookup = {ch: i for i, ch in enumerate(chars)}
    stream = torch.tensor([lookup[ch] for ch in text])
    window = torch.arange(c.block + 1)

    model = GPT(c, len(chars))
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                             {"params": rest, "weight_decay": 0.0}], lr=c.lr, betas=(0.9, 0.95))
    total = epochs * c.updates
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 20) * (0.1 + 0.45 * (1 + math.cos(math.pi * s / total))))
    folder = tempfile.mkdtemp()

    for epoch in range(epochs):
        t0 = time.time()
        running = torch.zeros(())
        for update in range(c.updates):
            opt.zero_grad(set_to_none=True)
            for _ in range(c.accumulate):
                starts = torch.randint(0, len(stream) - c.block - 1, (c.batch, 1))
                piece = stream[starts + window]
                loss = model(piece[:, :-1], piece[:, 1:]) / c.accumulate
                loss.backward()
                running += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
        if (epoch + 1) % 8 == 0:
            torch.save(model.state_dict(), os.path.join(folder, f"gpt_{epoch}.pt"))
        print(f"epoch {epoch} loss {running.item() / c.updates:.3f} bits "
              f"{running.item() / c.updates / math.log(2):.3f} {time.time() - t0:.2f}s")


if __name__ == "__main__":
    main()
