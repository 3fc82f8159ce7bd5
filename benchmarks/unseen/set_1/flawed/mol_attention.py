"""Graph transformer with hop-distance attention bias on small synthetic molecules.

The target is a made-up "solubility": a mix of hetero atom counts, rings and branching.
"""
import argparse
import math
import random
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ELEMENTS = ["C", "N", "O", "S", "F", "Cl"]
WEIGHTS = [0.66, 0.12, 0.12, 0.04, 0.04, 0.02]
MAX_HOPS = 12


@dataclass
class Config:
    molecules: int = 3200
    batch_size: int = 64
    dim: int = 64
    heads: int = 4
    layers: int = 2
    lr: float = 6e-4
    epochs: int = 22
    seed: int = 3


def grow_molecule(rng):
    n = rng.randint(14, 30)
    atoms = rng.choices(range(len(ELEMENTS)), WEIGHTS, k=n)
    neighbours = [[] for _ in range(n)]
    for i in range(1, n):
        j = rng.randint(max(0, i - 3), i - 1)
        neighbours[i].append(j)
        neighbours[j].append(i)
    rings = 0
    for _ in range(rng.randint(0, 3)):
        a = rng.randrange(n - 5)
        b = a + rng.choice([4, 5])
        if b not in neighbours[a]:
            neighbours[a].append(b)
            neighbours[b].append(a)
            rings += 1
    branching = sum(len(x) > 2 for x in neighbours)
    hetero = sum(a != 0 for a in atoms)
    target = 0.35 * hetero - 0.5 * rings - 0.2 * branching + rng.gauss(0, 0.1)
    return atoms, neighbours, target


def hop_matrix(neighbours):
    n = len(neighbours)
    hops = np.full((n, n), MAX_HOPS, dtype=np.int64)
    for source in range(n):
        row = hops[source]
        row[source] = 0
        queue = deque([source])
        while queue:  # <<
            u = queue.popleft()
            d = row[u] + 1  # <<
            for v in neighbours[u]:  # <<
                if d < row[v]:  # <<
                    row[v] = d  # <<
                    queue.append(v)
    return hops


class MoleculeSet(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.items = [grow_molecule(rng) for _ in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        atoms, neighbours, target = self.items[index]
        return atoms, neighbours, target


def collate(items):
    size = max(len(atoms) for atoms, _, _ in items)
    atoms = torch.full((len(items), size), len(ELEMENTS), dtype=torch.long)
    degree = torch.zeros(len(items), size, dtype=torch.long)
    hops = torch.full((len(items), size, size), MAX_HOPS, dtype=torch.long)
    target = torch.empty(len(items))
    for b, (a, neighbours, y) in enumerate(items):
        n = len(a)
        atoms[b, :n] = torch.tensor(a)
        degree[b, :n] = torch.tensor([len(x) for x in neighbours])
        hops[b, :n, :n] = torch.from_numpy(hop_matrix(neighbours))  # <<
        target[b] = y
    return atoms, degree, hops, target


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads) + bias
        x = x + self.out((att.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.ff(self.norm2(x))


class HopTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.atom = nn.Embedding(len(ELEMENTS) + 1, cfg.dim, padding_idx=len(ELEMENTS))
        self.degree = nn.Embedding(10, cfg.dim)
        self.hop_bias = nn.Embedding(MAX_HOPS + 1, cfg.heads)
        self.blocks = nn.ModuleList(Block(cfg.dim, cfg.heads) for _ in range(cfg.layers))
        self.head = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 1))

    def forward(self, atoms, degree, hops):
        real = atoms != len(ELEMENTS)
        x = self.atom(atoms) + self.degree(degree)
        bias = self.hop_bias(hops).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~real[:, None, None, :], -1e4)
        for block in self.blocks:
            x = block(x, bias)
        x = (x * real.unsqueeze(-1)).sum(1) / 10.0
        return self.head(x).squeeze(-1)


def main():
    cfg = Config()
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=cfg.epochs)
    cfg.epochs = ap.parse_args().epochs
    torch.manual_seed(cfg.seed)

    loader = DataLoader(MoleculeSet(cfg.molecules, cfg.seed), batch_size=cfg.batch_size, shuffle=True,
                        collate_fn=collate, drop_last=True)
    model = HopTransformer(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-2)

    for epoch in range(cfg.epochs):
        start = time.perf_counter()
        total = torch.zeros(())
        for atoms, degree, hops, target in loader:
            loss = F.smooth_l1_loss(model(atoms, degree, hops), target)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
        print(f"epoch {epoch:3d}  loss {total.item() / len(loader):.4f}  {time.perf_counter() - start:.2f}s")


if __name__ == "__main__":
    main()
