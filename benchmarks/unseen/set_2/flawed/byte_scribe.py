"""A byte-level causal language model with T5-style relative position biases."""
import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    vocab: int = 128
    context: int = 96
    n_layer: int = 3
    n_head: int = 4
    d_model: int = 96
    n_buckets: int = 32
    max_distance: int = 128
    dropout: float = 0.0


class RelativeBias(nn.Module):
    """Adds a learned bias per head and per (log-spaced) distance bucket to the attention logits."""

    def __init__(self, cfg):
        super().__init__()
        self.n_buckets = cfg.n_buckets
        self.max_distance = cfg.max_distance
        self.table = nn.Embedding(cfg.n_buckets, cfg.n_head)
        nn.init.normal_(self.table.weight, std=0.02)

    def bucket(self, distance):
        exact = self.n_buckets // 2
        if distance < exact:
            return distance
        ratio = math.log(distance / exact) / math.log(self.max_distance / exact)
        return min(exact + int(ratio * (self.n_buckets - exact)), self.n_buckets - 1)

    def forward(self, length):
        index = torch.zeros(length, length, dtype=torch.long)
        for q in range(length):  # <<
            index[q] = torch.tensor([self.bucket(max(q - k, 0)) for k in range(length)])  # <<
        return self.table(index).permute(2, 0, 1)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.ln1, self.ln2 = nn.LayerNorm(cfg.d_model), nn.LayerNorm(cfg.d_model)
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model, bias=False)
        self.proj = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.bias = RelativeBias(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.d_model, 4 * cfg.d_model), nn.GELU(),
                                 nn.Linear(4 * cfg.d_model, cfg.d_model), nn.Dropout(cfg.dropout))
        causal = torch.full((cfg.context, cfg.context), float("-inf")).triu(1)
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        mask = self.bias(t) + self.causal[:t, :t]  # <<
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class ByteLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.d_model)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.norm = nn.LayerNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.vocab, bias=False)
        self.head.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=0.02)

    def forward(self, ids, targets=None):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_corpus(n_sentences, seed):
    rnd = random.Random(seed)
    syll = ["ka", "lo", "mi", "ren", "sta", "vo", "qui", "del", "or", "an", "the", "bra"]
    nouns = ["".join(rnd.choices(syll, k=rnd.randint(2, 4))) for _ in range(300)]
    verbs = ["".join(rnd.choices(syll, k=2)) + "s" for _ in range(80)]
    out = []
    for _ in range(n_sentences):
        a, b = rnd.choice(nouns), rnd.choice(nouns)
        out.append(f"The {a} {rnd.choice(verbs)} the {b}. " if rnd.random() < 0.7
                   else f"When a {a} meets {b}, it {rnd.choice(verbs)} {rnd.randint(1, 99)} times. ")
    return torch.tensor(list("".join(out).encode()), dtype=torch.long)


def batches(data, context, batch, steps, gen):
    for _ in range(steps):
        at = torch.randint(len(data) - context - 1, (batch,), generator=gen)
        rows = at[:, None] + torch.arange(context + 1)
        chunk = data[rows]
        yield chunk[:, :-1], chunk[:, 1:]


def main():
    torch.manual_seed(1)
    cfg = GPTConfig()
    data = make_corpus(12_000, seed=1)
    cut = int(0.95 * len(data))
    train, held = data[:cut], data[cut:]
    model = ByteLM(cfg)
    print(f"{len(data):,} bytes, {sum(p.numel() for p in model.parameters()):,} parameters")
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    gen = torch.Generator().manual_seed(2)
    for epoch in range(5):
        t0, total, n = time.time(), 0.0, 80
        for x, y in batches(train, cfg.context, 16, n, gen):
            loss = model(x, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item()
        with torch.no_grad():
            val = [model(x, y).item() for x, y in batches(held, cfg.context, 16, 5, gen)]
        print(f"epoch {epoch}: train {total / n:.3f} val {sum(val) / len(val):.3f} nats/byte, "
              f"{1000 * (time.time() - t0) / n:.0f} ms/it")


if __name__ == "__main__":
    main()
