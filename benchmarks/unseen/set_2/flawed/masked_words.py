"""BERT-style pretraining on tokenised clinical notes (synthetic), masked-token objective only."""
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, MASK, PAD = 8000, 1, 0
LENGTH, BATCH = 64, 16
IGNORE = -100


def synthetic_notes(n, seed):
    """Token ids with topical structure: each note mixes two topics and a Zipf background."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(0).integers(10, VOCAB, (120, 60))
    pick = topics[rng.integers(0, 120, (n, 2))]
    own = pick[np.arange(n)[:, None], rng.integers(0, 2, (n, LENGTH)), rng.integers(0, 60, (n, LENGTH))]
    zipf = np.minimum(rng.zipf(1.25, (n, LENGTH)) + 9, VOCAB - 1)
    return torch.from_numpy(np.where(rng.random((n, LENGTH)) < 0.75, own, zipf))


def corrupt(ids, p=0.15):
    labels = ids.clone()
    chosen = torch.rand(ids.shape) < p
    labels[~chosen] = IGNORE
    r = torch.rand(ids.shape)
    inputs = ids.clone()
    inputs[chosen & (r < 0.8)] = MASK
    swap = chosen & (r >= 0.8) & (r < 0.9)
    inputs[swap] = torch.randint(10, VOCAB, (int(swap.sum()),))
    return inputs, labels


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.a(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))
        return x + self.ff(self.b(x))


class NoteBert(nn.Module):
    def __init__(self, d=128, depth=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.zeros(LENGTH, d))
        self.layers = nn.Sequential(*[Layer(d, heads) for _ in range(depth)])
        self.transform = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d))
        self.decoder = nn.Linear(d, VOCAB)
        self.decoder.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos, std=0.02)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, ids, labels):
        hidden = self.layers(self.tok(ids) + self.pos)
        scores = self.decoder(self.transform(hidden))  # <<
        return F.cross_entropy(scores.view(-1, VOCAB), labels.view(-1), ignore_index=IGNORE)  # <<


def main():
    torch.manual_seed(17)
    notes, held = synthetic_notes(3200, 1), synthetic_notes(320, 2)
    net = NoteBert()
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                            lr=1e-3, fused=True)
    step = 0
    for epoch in range(1, 3):
        start = time.perf_counter()
        for rows in torch.randperm(len(notes)).split(BATCH):
            for group in opt.param_groups:
                group["lr"] = 1e-3 * min(1.0, (step + 1) / 60)
            loss = net(*corrupt(notes[rows]))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step:4d} mlm loss {loss.item():.3f} {time.perf_counter() - start:.1f}s", flush=True)
        with torch.no_grad():
            val = np.mean([net(*corrupt(h)).item() for h in held.split(BATCH)])
        print(f"== epoch {epoch}: held-out {val:.3f}, perplexity {np.exp(val):.1f}")


if __name__ == "__main__":
    main()
