"""Metric learning for ceramic tile defects: embed 24x24 patches, triplet loss with batch-hard mining.

Every batch holds P defect types x K patches (as in the person re-id papers).
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    n_patches: int = 40_000
    n_types: int = 40
    p: int = 12
    k: int = 6
    batches_per_epoch: int = 110
    epochs: int = 5
    margin: float = 0.3
    lr: float = 1e-3
    seed: int = 5


class PatchSet(Dataset):
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        base = rng.normal(size=(cfg.n_types, 24, 24)).astype(np.float32)
        self.labels = rng.integers(0, cfg.n_types, cfg.n_patches).tolist()
        noise = rng.standard_normal((cfg.n_patches, 24, 24), dtype=np.float32)
        self.patches = torch.from_numpy(0.5 * base[self.labels] + 1.2 * noise).unsqueeze(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.patches[i], self.labels[i]


class TypeBalancedBatches(Sampler):
    """Yields lists of P*K indices."""

    def __init__(self, labels, p, k, n_batches, seed):
        self.labels = labels
        self.types = sorted(set(labels))
        self.p, self.k, self.n_batches = p, k, n_batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for t in self.rng.choice(self.types, self.p, replace=False):
                members = [i for i, y in enumerate(self.labels) if y == t]  # <<
                batch.extend(self.rng.choice(members, self.k, replace=False).tolist())  # <<
            yield batch


class Embedder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 36, dim),
        )

    def forward(self, x):
        return nn.functional.normalize(self.body(x), dim=1)


def batch_hard_triplet(z, y, margin):
    d = torch.cdist(z, z)
    same = y[:, None] == y[None, :]
    hardest_pos = d.masked_fill(~same, 0).amax(1)
    hardest_neg = d.masked_fill(same, 10).amin(1)
    return torch.relu(hardest_pos - hardest_neg + margin).mean()


def main(cfg):
    torch.manual_seed(cfg.seed)
    data = PatchSet(cfg)
    sampler = TypeBalancedBatches(data.labels, cfg.p, cfg.k, cfg.batches_per_epoch, cfg.seed)
    loader = DataLoader(data, batch_sampler=sampler)
    net = Embedder()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)

    for epoch in range(cfg.epochs):
        losses = []
        for x, y in loader:
            loss = batch_hard_triplet(net(x), y, cfg.margin)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"[{epoch}] triplet {np.mean(losses):.4f}  last {losses[-1]:.4f}")


if __name__ == "__main__":
    main(Config())
