"""Frame-wise phone recogniser (hybrid style): TDNN on filterbanks, cross entropy on frame labels."""
import argparse
import time
from itertools import groupby

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PHONES = 42
BANDS = 40
SIL = 0


def corpus(n, frames, seed):
    """Aligned utterances: phones last 3 to 8 frames."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 1.0, (PHONES, BANDS))
    x = np.empty((n, BANDS, frames), dtype=np.float32)
    y = np.zeros((n, frames), dtype=np.int64)
    for u in range(n):
        t = int(rng.integers(2, 8))
        while t < frames - 8:
            length = int(rng.integers(3, 9))
            y[u, t:t + length] = rng.integers(1, PHONES)
            t += length
        x[u] = means[y[u]].T
    x += rng.normal(0, 1.6, x.shape)
    return torch.from_numpy(x), torch.from_numpy(y)


class TDNN(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, width, 3, padding=2, dilation=2), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, PHONES, 1))

    def forward(self, x):
        return self.net(x)


def collapse(frames):
    return [p for p, _ in groupby(frames) if p != SIL]


def levenshtein(a, b):
    previous = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):  # <<
        current = [i]
        for j, cb in enumerate(b, 1):  # <<
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (ca != cb)))
        previous = current
    return previous[-1]


def phone_error_rate(logits, y):
    errors = total = 0
    for hyp, ref in zip(logits.argmax(1).tolist(), y.tolist()):
        hyp, ref = collapse(hyp), collapse(ref)
        errors += levenshtein(ref, hyp)  # <<
        total += len(ref)
    return 100.0 * errors / total


class Meter:
    def __init__(self, momentum=0.9):
        self.value, self.momentum = None, momentum

    def __call__(self, v):
        self.value = v if self.value is None else self.momentum * self.value + (1 - self.momentum) * v


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--utts", type=int, default=2400)
    parser.add_argument("--frames", type=int, default=320)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--log-every", type=int, default=25)
    args = parser.parse_args()
    torch.manual_seed(8)
    x, y = corpus(args.utts + 96, args.frames, seed=8)
    train = DataLoader(TensorDataset(x[:-96], y[:-96]), args.batch, shuffle=True)
    dev = DataLoader(TensorDataset(x[-96:], y[-96:]), args.batch)
    model = TDNN()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        model.train()
        tic = time.time()
        loss_meter, per_meter = Meter(), Meter()
        for step, (feats, labels) in enumerate(train):
            logits = model(feats)
            loss = F.cross_entropy(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_meter(loss.item())
            per_meter(phone_error_rate(logits.detach(), labels))  # <<
            if step % args.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss_meter.value:.3f} PER {per_meter.value:.1f}")
        model.eval()
        with torch.no_grad():
            per = np.mean([phone_error_rate(model(f), l) for f, l in dev])
        print(f"epoch {epoch}: dev PER {per:.1f}  {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
