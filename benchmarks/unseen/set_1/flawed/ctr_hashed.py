"""CTR prediction with hashed categorical features (DLRM without the dot products)."""
from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Options:
    epochs: int = 20
    fields: int = 20
    buckets: int = 120_000
    dim: int = 16
    dense: int = 13
    batch_size: int = 400
    impressions: int = 48_000
    layers: list[int] = field(default_factory=lambda: [192, 96])
    lr: float = 0.02
    seed: int = 2024


def simulate_log(o: Options):
    rng = np.random.default_rng(o.seed)
    raw = rng.zipf(1.3, size=(o.impressions, o.fields)) % 10_000_019
    salt = rng.integers(1, 2**31, size=o.fields)
    hashed = (raw * 2_654_435_761 + salt) % o.buckets
    dense = rng.lognormal(0, 1, size=(o.impressions, o.dense)).astype(np.float32)
    w = rng.normal(0, 0.4, size=o.dense)
    affinity = ((hashed[:, :4] % 97) / 97.0 - 0.5).sum(1)
    p = 1 / (1 + np.exp(-(np.log(dense) @ w + 1.5 * affinity - 1.0)))
    click = (rng.random(o.impressions) < p).astype(np.float32)
    return torch.from_numpy(hashed), torch.from_numpy(np.log1p(dense)), torch.from_numpy(click)


class HashedCTR(nn.Module):
    def __init__(self, o: Options):
        super().__init__()
        self.embedding = nn.Embedding(o.buckets, o.dim)  # <<
        nn.init.uniform_(self.embedding.weight, -0.01, 0.01)
        sizes = [o.fields * o.dim + o.dense, *o.layers]
        mlp = []
        for a, b in zip(sizes, sizes[1:]):
            mlp += [nn.Linear(a, b), nn.ReLU()]
        self.mlp = nn.Sequential(*mlp, nn.Linear(sizes[-1], 1))

    def forward(self, ids, dense):
        e = self.embedding(ids).flatten(1)
        return self.mlp(torch.cat([e, dense], dim=1)).squeeze(1)


class Meter:
    def __init__(self):
        self.value, self.weight = torch.zeros(()), 0

    def add(self, v, n):
        self.value += v.detach() * n
        self.weight += n

    def __str__(self):
        return f"{self.value.item() / self.weight:.5f}"


def train(o: Options):
    torch.manual_seed(o.seed)
    ids, dense, click = simulate_log(o)
    model = HashedCTR(o)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=o.lr, eps=1e-8)  # <<
    g = torch.Generator().manual_seed(o.seed)

    for epoch in range(o.epochs):
        tick = time.monotonic()
        logloss = Meter()
        for rows in torch.randperm(o.impressions, generator=g).split(o.batch_size):
            out = model(ids[rows], dense[rows])
            loss = F.binary_cross_entropy_with_logits(out, click[rows])
            optimizer.zero_grad()
            loss.backward()  # <<
            optimizer.step()  # <<
            logloss.add(loss, len(rows))
        print(f"epoch {epoch:>2} logloss {logloss} seconds {time.monotonic() - tick:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Options.epochs)
    train(Options(epochs=parser.parse_args().epochs))
