"""Metric learning on trajectories of knots: PK batches, batch-hard triplets, a 1-d convolutional encoder."""
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

KNOTS, PER_KNOT, POINTS = 120, 30, 160


class Knots(Dataset):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        t = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
        harmonics = np.stack([np.cos(k * t) for k in range(1, 6)] + [np.sin(k * t) for k in range(1, 6)])
        shape = rng.normal(size=(KNOTS, 3, 10))
        self.label = np.repeat(np.arange(KNOTS), PER_KNOT)
        curve = (shape[self.label] + rng.normal(0, 0.25, (len(self.label), 3, 10))) @ harmonics
        self.curve = torch.tensor(curve + rng.normal(0, 0.15, curve.shape), dtype=torch.float32)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return torch.roll(self.curve[i], random.randrange(POINTS), dims=1), int(self.label[i])


class PK(Sampler):
    def __init__(self, labels, p, k, batches):
        self.members = {}
        for i, lab in enumerate(labels):
            self.members.setdefault(int(lab), []).append(i)
        self.p, self.k, self.batches = p, k, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for lab in random.sample(sorted(self.members), self.p):
                batch += random.sample(self.members[lab], self.k)
            yield batch


class Encoder(nn.Module):
    def __init__(self, c=64, out=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(3, c, 7, padding=3, padding_mode="circular"), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(c, c, 5, padding=2), nn.ReLU(), nn.Conv1d(c, c, 5, padding=2), nn.ReLU())
        self.proj = nn.Linear(2 * c, out)

    def forward(self, x):
        h = self.net(x)
        return F.normalize(self.proj(torch.cat([h.mean(-1), h.amax(-1)], 1)), dim=1)


def batch_hard(e, y, margin=0.2):
    d = torch.cdist(e, e)
    same = y[:, None] == y[None]
    hardest_pos = d.masked_fill(~same, -1.0).amax(1)
    hardest_neg = d.masked_fill(same, 1e3).amin(1)
    return F.softplus((hardest_pos - hardest_neg + margin) * 5).mean(), (hardest_pos < hardest_neg).float().mean()


@torch.no_grad()
def recall_at_1(model, data):
    model.eval()
    e = torch.cat([model(c) for c in data.curve.split(400)])
    y = torch.from_numpy(data.label)
    sim = e @ e.T
    sim.fill_diagonal_(-2)
    return (y[sim.argmax(1)] == y).float().mean().item()


def main(epochs=8):
    random.seed(9)
    torch.manual_seed(9)
    data, held = Knots(9), Knots(10)
    loader = DataLoader(data, batch_sampler=PK(data.label, p=16, k=6, batches=90))
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        model.train()
        tic = time.time()
        for i, (x, y) in enumerate(loader):
            loss, active = batch_hard(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 15 == 0:
                print(f"epoch {epoch} {i:2d} loss {loss.item():.3f} ordered {active.item():.2f}")
        print(f"epoch {epoch}: held-out recall@1 {recall_at_1(model, held):.3f} ({time.time() - tic:.1f}s)")


if __name__ == "__main__":
    main()
