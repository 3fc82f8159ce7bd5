"""Active learning on sequence windows around variants: train, score the unlabelled pool with MC dropout,
send the most uncertain windows to the curators, repeat."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Plan:
    pool: int = 4000
    window: int = 200
    start: int = 300
    query: int = 150
    rounds: int = 5
    epochs: int = 6
    passes: int = 10
    batch: int = 50


def variants(n, window, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (n, window))
    y = rng.integers(0, 2, n)
    donor = np.array([2, 3, 0, 0, 2, 3])     # GTAAGT
    for i in np.flatnonzero(y):
        p = window // 2 + rng.integers(-3, 4)
        keep = rng.random(6) < 0.85
        codes[i, p:p + 6][keep] = donor[keep]
    x = np.eye(4, dtype=np.float32)[codes].transpose(0, 2, 1)
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)


class SpliceCNN(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(4, c, 11, padding=5), nn.ReLU(), nn.Conv1d(c, c, 7, padding=3), nn.ReLU(),
            nn.MaxPool1d(4), nn.Conv1d(c, c, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(0.4), nn.Linear(4 * c, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 2))

    def forward(self, x):
        return self.head(self.encoder(x))


def fit(model, x, y, plan):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for epoch in range(plan.epochs):
        for idx in torch.randperm(len(x)).split(plan.batch):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


@torch.no_grad()
def mutual_information(model, x, plan):
    """BALD score of each window in the pool."""
    model.train()      # dropout stays on
    scores = []
    for chunk in x.split(200):
        probs = torch.stack([model(chunk).softmax(-1) for _ in range(plan.passes)])  # <<
        mean = probs.mean(0)
        entropy = -(mean * mean.clamp(min=1e-9).log()).sum(-1)
        expected = -(probs * probs.clamp(min=1e-9).log()).sum(-1).mean(0)
        scores.append(entropy - expected)
    return torch.cat(scores)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (torch.cat([model(c) for c in x.split(500)]).argmax(1) == y).float().mean().item()


def main():
    plan = Plan()
    torch.manual_seed(23)
    x, y = variants(plan.pool + 800, plan.window, seed=23)
    tx, ty = x[plan.pool:], y[plan.pool:]
    labelled = torch.zeros(plan.pool, dtype=torch.bool)
    labelled[torch.randperm(plan.pool)[:plan.start]] = True
    for r in range(plan.rounds):
        tic = time.time()
        model = SpliceCNN()
        known = labelled.nonzero().squeeze(1)
        loss = fit(model, x[known], y[known], plan)
        fitted = time.time() - tic
        acc = accuracy(model, tx, ty)
        unknown = (~labelled).nonzero().squeeze(1)
        score = mutual_information(model, x[unknown], plan)  # <<
        labelled[unknown[score.topk(plan.query).indices]] = True
        print(f"round {r}: {len(known)} labels, loss {loss:.3f}, accuracy {acc:.3f}, "
              f"fit {fitted:.1f}s, total {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
