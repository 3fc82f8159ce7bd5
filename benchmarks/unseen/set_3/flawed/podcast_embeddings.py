"""Sampled-softmax item embeddings for podcasts from listening sequences."""
from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    shows: int = 150_000
    dim: int = 48
    listens: int = 180_000
    batch: int = 512
    negatives: int = 20
    window: int = 5
    epochs: int = 2
    lr: float = 0.1
    seed: int = 13


def listening_log(s: Settings) -> np.ndarray:
    """Column 0..window-1: context shows, last column: the show played next."""
    rng = np.random.default_rng(s.seed)
    topic = rng.integers(0, 300, s.listens)
    popularity = (rng.pareto(1.2, (s.listens, s.window + 1)) * 30).astype(np.int64)
    return (popularity * 300 + topic[:, None]) % s.shows


class ShowVectors(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.context = nn.Embedding(s.shows, s.dim)  # <<
        self.target = nn.Embedding(s.shows, s.dim)  # <<
        nn.init.normal_(self.context.weight, std=0.05)
        nn.init.normal_(self.target.weight, std=0.05)

    def forward(self, context, positive, negative):
        h = self.context(context).mean(1)
        pos = (h * self.target(positive)).sum(1, keepdim=True)
        neg = h @ self.target(negative).T
        return torch.cat([pos, neg], 1)


class Fit:
    def __init__(self, s: Settings):
        torch.manual_seed(s.seed)
        self.s = s
        log = torch.from_numpy(listening_log(s))
        self.train, self.test = log[:-20_000], log[-20_000:]
        self.model = ShowVectors(s)
        self.opt = torch.optim.Adagrad(self.model.parameters(), lr=s.lr)

    def batches(self, rows):
        for idx in torch.randperm(len(rows)).split(self.s.batch):
            yield rows[idx]

    def loss(self, rows):
        negative = torch.randint(0, self.s.shows, (self.s.negatives * 16,))
        logits = self.model(rows[:, :-1], rows[:, -1], negative)
        return F.cross_entropy(logits, torch.zeros(len(rows), dtype=torch.long))

    def run(self):
        for epoch in range(self.s.epochs):
            tic, losses = time.time(), []
            for i, rows in enumerate(self.batches(self.train)):
                self.opt.zero_grad()
                loss = self.loss(rows)
                loss.backward()
                self.opt.step()  # <<
                losses.append(loss.item())
                if i % 50 == 49:
                    print(f"epoch {epoch} it {i + 1} loss {np.mean(losses[-50:]):.4f}")
            print(f"epoch {epoch} done: {np.mean(losses):.4f}, test {self.evaluate():.4f}, {time.time() - tic:.1f}s")

    @torch.no_grad()
    def evaluate(self):
        return float(np.mean([self.loss(r).item() for r in self.test.split(4000)]))


if __name__ == "__main__":
    Fit(Settings()).run()
