"""Two-tower retrieval for podcasts, in-batch negatives with popularity correction."""
import time
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Plays(NamedTuple):
    user: torch.Tensor      # id, age bucket, country, device, plan
    history: torch.Tensor   # last ten shows
    show: torch.Tensor      # id, language, category, length bucket
    log_q: torch.Tensor


USER_CARDS = (5000, 10, 60, 4, 3)
SHOW_CARDS = (3000, 20, 40, 6)


def simulate(n, seed, world_seed=0):
    w, r = np.random.default_rng(world_seed), np.random.default_rng(seed)
    show_meta = np.stack([np.arange(3000)] + [w.integers(0, c, 3000) for c in SHOW_CARDS[1:]], 1)
    user_meta = np.stack([np.arange(5000)] + [w.integers(0, c, 5000) for c in USER_CARDS[1:]], 1)
    by_cat = [np.flatnonzero(show_meta[:, 2] == c) for c in range(40)]
    likes = w.integers(0, 40, (5000, 2))
    pop = w.zipf(1.4, 3000).clip(1, 400).astype(float)
    probs = [pop[s] / pop[s].sum() for s in by_cat]
    u = r.integers(0, 5000, n)
    cats = likes[u[:, None], r.integers(0, 2, (n, 11))]
    plays = np.empty((n, 11), np.int64)
    for c in range(40):
        m = cats == c
        plays[m] = r.choice(by_cat[c], int(m.sum()), p=probs[c])
    q = np.bincount(plays[:, 0], minlength=3000) + 1.0
    return Plays(torch.from_numpy(user_meta[u]), torch.from_numpy(plays[:, 1:]),
                 torch.from_numpy(show_meta[plays[:, 0]]),
                 torch.from_numpy(np.log(q / q.sum())[plays[:, 0]]).float()), torch.from_numpy(show_meta)


class Tower(nn.Module):
    def __init__(self, cards, dim=24, extra=0, out=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        self.mlp = nn.Sequential(nn.Linear(dim * len(cards) + extra, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                 nn.Linear(128, out))

    def forward(self, cols, *extra):
        parts = [table(cols[:, k]) for k, table in enumerate(self.tables)]
        return F.normalize(self.mlp(torch.cat([*parts, *extra], 1)), dim=1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(SHOW_CARDS[0], 24, mode="mean")
        self.users, self.shows = Tower(USER_CARDS, extra=24), Tower(SHOW_CARDS)

    def forward(self, user, history, show):
        return self.users(user, self.bag(history)), self.shows(show)


def recall_at(model, plays, catalogue, k=50):
    model.eval()
    with torch.no_grad():
        items = model.shows(catalogue)
        hit = 0
        for rows in torch.arange(len(plays.user)).split(1000):
            top = (model.users(plays.user[rows], model.bag(plays.history[rows])) @ items.t()).topk(k).indices
            hit += (top == plays.show[rows, :1]).any(1).sum().item()
    model.train()
    return hit / len(plays.user)


def train(epochs=7, batch=1024, temperature=0.07):
    torch.manual_seed(1)
    plays, catalogue = simulate(120_000, 1)
    test, _ = simulate(3000, 2)
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(1, epochs + 1):
        t0, total, steps = time.time(), 0.0, 0
        for idx in torch.randperm(len(plays.user)).split(batch):
            u, s = model(plays.user[idx], plays.history[idx], plays.show[idx])
            logits = u @ s.t() / temperature - plays.log_q[idx]
            same = plays.show[idx, 0][:, None] == plays.show[idx, 0][None]
            same.fill_diagonal_(False)
            loss = F.cross_entropy(logits.masked_fill(same, -1e4), torch.arange(len(idx)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            steps += 1
        print(f"epoch {epoch}: loss {total / steps:.4f} recall@50 {recall_at(model, test, catalogue):.4f} "
              f"({time.time() - t0:.1f}s, {steps} steps)", flush=True)


if __name__ == "__main__":
    train()
