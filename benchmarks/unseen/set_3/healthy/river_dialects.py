"""Dialect identification from utterances of very different length (LSTM over filterbanks)."""
import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

DIALECTS, BANDS = 8, 32


class Utterances(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.lengths = np.clip(rng.gamma(2.0, 35.0, n).astype(int) + 20, 20, 260)
        self.y = rng.integers(0, DIALECTS, n)
        slope = rng.normal(0, 0.15, (DIALECTS, BANDS, BANDS)) / np.sqrt(BANDS)
        self.x = []
        for length, y in zip(self.lengths, self.y):
            e = rng.normal(0, 1, (length, BANDS)).astype(np.float32)
            e[1:] += e[:-1] @ (0.5 * np.eye(BANDS) + 3 * slope[y]).astype(np.float32)
            self.x.append(torch.from_numpy(e))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class ByLength(Sampler):
    """Batches of similar length: shuffle, sort within pools of 20 batches, shuffle the batches."""

    def __init__(self, lengths, batch, indices):
        self.lengths, self.batch, self.indices = lengths, batch, list(indices)

    def __len__(self):
        return -(-len(self.indices) // self.batch)

    def __iter__(self):
        order = self.indices[:]
        random.shuffle(order)
        pool, batches = self.batch * 20, []
        for k in range(0, len(order), pool):
            part = sorted(order[k:k + pool], key=lambda i: -self.lengths[i])
            batches += [part[j:j + self.batch] for j in range(0, len(part), self.batch)]
        random.shuffle(batches)
        return iter(batches)


def collate(items):
    x, y = zip(*items)
    return pad_sequence(x, batch_first=True), torch.tensor([len(v) for v in x]), torch.tensor(y)


class DialectNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.rnn = nn.LSTM(BANDS, hidden, batch_first=True)
        self.out = nn.Linear(hidden, DIALECTS)

    def forward(self, x, lengths):
        _, (h, _) = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=True))
        return self.out(h[-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--utterances", type=int, default=4000)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=4)
    a = ap.parse_args()
    random.seed(1), torch.manual_seed(1)
    data = Utterances(a.utterances, 1)
    cut = int(0.9 * a.utterances)
    train = DataLoader(data, batch_sampler=ByLength(data.lengths, a.batch, range(cut)), collate_fn=collate)
    dev = DataLoader(data, batch_sampler=ByLength(data.lengths, a.batch, range(cut, a.utterances)), collate_fn=collate)
    net = DialectNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(a.epochs):
        net.train()
        tic, losses = time.time(), []
        for i, (x, lengths, y) in enumerate(train):
            loss = nn.functional.cross_entropy(net(x, lengths), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            losses.append(loss.item())
            if i % 25 == 0:
                print(f"epoch {epoch} {i}/{len(train)} frames {x.shape[1]} loss {losses[-1]:.3f}")
        net.eval()
        with torch.no_grad():
            ok = sum((net(x, n).argmax(1) == y).sum().item() for x, n, y in dev)
        print(f"epoch {epoch}: {np.mean(losses):.3f}, dev {ok / (a.utterances - cut):.3f}, {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
