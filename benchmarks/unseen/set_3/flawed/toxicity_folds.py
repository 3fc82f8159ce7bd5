"""Five-fold cross-validation of a toxicity classifier on circular fingerprints of line notations."""
import argparse
import random
import time
import zlib

import torch
from torch import nn

BITS = 1024
ALPHABET = ["C", "C", "C", "c1ccccc1", "N", "O", "S", "Cl", "F", "=O", "C(=O)O", "N(C)C", "#N", "Br"]


def random_line_notation(rng):
    return [rng.choice(ALPHABET) for _ in range(rng.randint(8, 26))]


def is_toxic(tokens, rng):
    score = 0.0
    for a, b in zip(tokens, tokens[1:]):
        if (a, b) in {("N", "=O"), ("Cl", "Cl"), ("Br", "C"), ("c1ccccc1", "N"), ("S", "Cl")}:
            score += 1.0
    return float(score + rng.gauss(0, 0.3) > 0.7)


def fingerprint(tokens, radius=4):
    """hash every window of up to `radius` neighbours around each token, with counts"""
    fp = [0.0] * BITS
    for centre in range(len(tokens)):
        for r in range(radius + 1):
            lo, hi = max(0, centre - r), min(len(tokens), centre + r + 1)
            environment = "|".join(tokens[lo:hi])
            for salt in ("a", "b", "c"):
                key = zlib.crc32(f"{salt}:{r}:{environment}".encode())
                fp[key % BITS] += 1.0
    return torch.log1p(torch.tensor(fp))


def featurise(molecules):
    return torch.stack([fingerprint(m) for m in molecules])  # <<


def make_net():
    return nn.Sequential(
        nn.Linear(BITS, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 1), nn.Flatten(0)
    )


def auc(score, y):
    rank = score.argsort().argsort().double() + 1
    pos = y.sum().double()
    return ((rank[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def run_fold(fold, folds, molecules, y, args):
    x = featurise(molecules)  # <<
    idx = torch.arange(len(y))
    test, train = idx % folds == fold, idx % folds != fold
    mean, std = x[train].mean(0), x[train].std(0) + 1e-3
    xtr, ytr = (x[train] - mean) / std, y[train]
    xte, yte = (x[test] - mean) / std, y[test]
    torch.manual_seed(fold)
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, weight_decay=1e-4)
    lossf = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        net.train()
        for sel in torch.randperm(len(xtr)).split(args.batch):
            loss = lossf(net(xtr[sel]), ytr[sel])
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            a = auc(net(xte), yte)
        print(f"fold {fold} epoch {epoch} loss {loss.item():.3f} auc {a:.3f}", flush=True)
    return a


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--molecules", type=int, default=4000)
    ap.add_argument("--folds", type=int, default=5)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-4)
    args = ap.parse_args()
    rng = random.Random(12)
    molecules = [random_line_notation(rng) for _ in range(args.molecules)]
    y = torch.tensor([is_toxic(m, rng) for m in molecules])
    print(f"{len(y)} molecules, {int(y.sum())} toxic")
    scores = []
    for fold in range(args.folds):
        t0 = time.time()
        scores.append(run_fold(fold, args.folds, molecules, y, args))  # <<
        print(f"fold {fold} finished in {time.time() - t0:.1f}s", flush=True)
    print(f"mean auc {sum(scores) / len(scores):.3f}")


if __name__ == "__main__":
    main()
