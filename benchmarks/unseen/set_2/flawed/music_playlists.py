"""Track2vec: skip-gram with negative sampling over playlists."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset


class PlaylistStream(IterableDataset):
    """Yields ready batches of (centre, context, negatives)."""

    def __init__(self, n_tracks, n_playlists, batch, n_neg=8, window=4, seed=0):
        rng = np.random.default_rng(seed)
        self.n_tracks, self.batch, self.n_neg, self.window = n_tracks, batch, n_neg, window
        genre_size = 400
        genres = rng.integers(0, n_tracks // genre_size, n_playlists)
        inside = np.minimum(rng.zipf(1.2, (n_playlists, 25)) - 1, 10 ** 6) % genre_size
        anywhere = rng.integers(0, n_tracks, (n_playlists, 25))
        self.lists = np.where(rng.random((n_playlists, 25)) < 0.9, genres[:, None] * genre_size + inside, anywhere)
        counts = np.bincount(self.lists.ravel(), minlength=n_tracks) ** 0.75
        self.cdf = np.cumsum(counts / counts.sum())
        self.rng = rng

    def pairs(self):
        out = []
        for off in range(1, self.window + 1):
            a, b = self.lists[:, :-off].ravel(), self.lists[:, off:].ravel()
            out += [np.stack([a, b], 1), np.stack([b, a], 1)]
        return np.concatenate(out)

    def __len__(self):
        w, (n, l) = self.window, self.lists.shape
        return 2 * n * sum(l - o for o in range(1, w + 1)) // self.batch

    def __iter__(self):
        pairs = self.pairs()
        order = self.rng.permutation(len(pairs))
        for i in range(len(self)):
            chunk = pairs[order[i * self.batch:(i + 1) * self.batch]]
            neg = np.searchsorted(self.cdf, self.rng.random((self.batch, self.n_neg)))
            neg = np.minimum(neg, self.n_tracks - 1)
            yield torch.from_numpy(chunk[:, 0]), torch.from_numpy(chunk[:, 1]), torch.from_numpy(neg)


class SkipGram(nn.Module):
    def __init__(self, n_tracks, dim):
        super().__init__()
        self.centre = nn.Embedding(n_tracks, dim)  # <<
        self.context = nn.Embedding(n_tracks, dim)  # <<
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, c, pos, neg):
        v = self.centre(c)
        up = (v * self.context(pos)).sum(1)
        un = torch.bmm(self.context(neg), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(up) + F.logsigmoid(-un).sum(1)).mean()


def neighbours(model, track, k=5):
    w = F.normalize(model.centre.weight.detach(), dim=1)
    return (w @ w[track]).topk(k + 1).indices[1:].tolist()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--tracks", type=int, default=80_000)
    p.add_argument("--playlists", type=int, default=3_000)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--batch", type=int, default=2048)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=100.0, help="per example mean, hence large")
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    stream = PlaylistStream(args.tracks, args.playlists, args.batch)
    loader = DataLoader(stream, batch_size=None)
    model = SkipGram(args.tracks, args.dim)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    total_steps, step = args.epochs * len(stream), 0
    for epoch in range(args.epochs):
        t0, acc = time.time(), 0.0
        for c, pos, neg in loader:
            for g in opt.param_groups:
                g["lr"] = args.lr * (1 - 0.9 * step / total_steps)
            loss = model(c, pos, neg)
            opt.zero_grad()
            loss.backward()  # <<
            opt.step()  # <<
            acc += loss.item()
            step += 1
            if step % 100 == 0:
                print(f"   {step}/{total_steps} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch + 1} mean loss {acc / len(stream):.4f} {time.time() - t0:.1f}s "
              f"near track 7: {neighbours(model, 7)}")


if __name__ == "__main__":
    main()
