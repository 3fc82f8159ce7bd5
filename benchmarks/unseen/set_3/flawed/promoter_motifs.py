"""Promoter / background classifier on raw DNA, in the spirit of DeepBind.

    python promoter_motifs.py --epochs 4
"""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

BASES = "ACGT"
COMPLEMENT = str.maketrans("ACGTN", "TGCAN")
MOTIFS = ["TATAAAAG", "GGGCGGGGC", "CCAATCAG"]


def simulate_genome(n, length, seed):
    rng = np.random.default_rng(seed)
    alphabet = np.frombuffer(b"ACGT", dtype=np.uint8)
    rows = alphabet[rng.integers(0, 4, size=(n, length))]
    labels = rng.integers(0, 2, size=n)
    for i in np.flatnonzero(labels):
        for motif in MOTIFS:
            if rng.random() < 0.8:
                start = rng.integers(0, length - len(motif))
                rows[i, start:start + len(motif)] = np.frombuffer(motif.encode(), dtype=np.uint8)
    # a few unknown bases, as in every assembly
    rows[rng.random((n, length)) < 0.003] = ord("N")
    return [r.tobytes().decode() for r in rows], labels


class PromoterSet(Dataset):
    def __init__(self, sequences, labels, augment):
        self.sequences = sequences
        self.labels = labels
        self.augment = augment

    def __len__(self):
        return len(self.sequences)

    def one_hot(self, seq):
        x = torch.zeros(4, len(seq))
        for pos, base in enumerate(seq):  # <<
            if base in BASES:
                x[BASES.index(base), pos] = 1.0  # <<
        return x

    def __getitem__(self, i):
        seq = self.sequences[i]
        if self.augment:
            if random.random() < 0.5:
                seq = seq.translate(COMPLEMENT)[::-1]
            shift = random.randint(0, 12)
            seq = seq[shift:] + seq[:shift]
        return self.one_hot(seq), float(self.labels[i])  # <<


class MotifNet(nn.Module):
    def __init__(self, filters=40):
        super().__init__()
        self.scan = nn.Conv1d(4, filters, 15, padding=7)
        self.mix = nn.Conv1d(filters, filters, 7, padding=3)
        self.out = nn.Sequential(nn.Linear(filters * 2, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(self, x):
        h = F.max_pool1d(F.relu(self.scan(x)), 4)
        h = F.relu(self.mix(h))
        pooled = torch.cat([h.amax(-1), h.mean(-1)], dim=1)
        return self.out(pooled).squeeze(1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        hits += ((model(x) > 0) == (y > 0.5)).sum().item()
        total += len(y)
    return hits / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    seqs, labels = simulate_genome(args.train + 600, args.length, seed=1)
    train = PromoterSet(seqs[:args.train], labels[:args.train], augment=True)
    held = PromoterSet(seqs[args.train:], labels[args.train:], augment=False)
    train_loader = DataLoader(train, batch_size=args.batch, shuffle=True, drop_last=True)
    held_loader = DataLoader(held, batch_size=200)

    model = MotifNet()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        t0, running = time.time(), 0.0
        for step, (x, y) in enumerate(train_loader):
            loss = F.binary_cross_entropy_with_logits(model(x), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
        acc = evaluate(model, held_loader)
        print(f"epoch {epoch}: train loss {running / len(train_loader):.4f}  held-out acc {acc:.3f}  ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
