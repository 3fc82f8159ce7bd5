"""Classifies seismic events (quake, blast, ice, noise) from three-component traces of unequal length."""
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

KINDS = ["quake", "blast", "ice", "noise"]


def trace(rng):
    n = int(rng.integers(150, 900))
    t = np.arange(n)
    kind = int(rng.integers(4))
    out = rng.normal(0, 0.4, (n, 3))
    onset = int(rng.integers(20, n // 2))
    s = np.clip(t - onset, 0, None)
    if kind == 0:
        second = np.clip(s - n // 6, 0, None)
        out[:, 2] += (s > 0) * np.exp(-s / 60) * np.sin(0.9 * s)
        out[:, :2] += ((second > 0) * np.exp(-second / 90) * np.sin(0.5 * second))[:, None]
    elif kind == 1:
        out += ((s > 0) * 1.4 * np.exp(-s / 25) * np.sin(1.3 * s))[:, None]
    elif kind == 2:
        out[:, 2] += (s > 0) * 0.8 * np.exp(-s / 140) * np.sin(0.25 * s)
    return torch.from_numpy(out.astype(np.float32)), kind


class Traces(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = [trace(rng) for _ in range(n)]
        self.lengths = [len(x) for x, _ in self.items]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class LengthBuckets(Sampler):
    """Batches of similar length: shuffle, sort chunks of 20 batches by length, shuffle the batches."""

    def __init__(self, lengths, batch, chunk=20):
        self.lengths, self.batch, self.chunk = lengths, batch, chunk

    def __len__(self):
        return -(-len(self.lengths) // self.batch)

    def __iter__(self):
        order = torch.randperm(len(self.lengths)).tolist()
        batches, span = [], self.batch * self.chunk
        for lo in range(0, len(order), span):
            part = sorted(order[lo:lo + span], key=self.lengths.__getitem__)
            batches += [part[i:i + self.batch] for i in range(0, len(part), self.batch)]
        for i in torch.randperm(len(batches)).tolist():
            yield batches[i]


def collate(items):
    traces, kinds = zip(*items)
    lengths = torch.tensor([len(x) for x in traces])
    return pad_sequence(traces, batch_first=True).transpose(1, 2).contiguous(), lengths, torch.tensor(kinds)


class TraceNet(nn.Module):
    def __init__(self, w=48):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(3, w, 9, stride=2, padding=4), nn.ReLU(inplace=True),
            nn.Conv1d(w, w, 7, padding=3), nn.ReLU(inplace=True),
            nn.Conv1d(w, 2 * w, 7, stride=2, padding=3), nn.ReLU(inplace=True),
            nn.Conv1d(2 * w, 2 * w, 5, padding=2), nn.ReLU(inplace=True))
        self.out = nn.Linear(4 * w, len(KINDS))

    def forward(self, x, lengths):
        h = self.convs(x)
        valid = torch.arange(h.shape[-1]) < ((lengths + 3) // 4).unsqueeze(1)
        h = h * valid.unsqueeze(1)
        return self.out(torch.cat([h.sum(-1) / valid.sum(1, keepdim=True), h.amax(-1)], 1))


def main(epochs=5):
    torch.manual_seed(23)
    train, test = Traces(3500, 23), Traces(500, 24)
    loader = DataLoader(train, batch_sampler=LengthBuckets(train.lengths, 32), collate_fn=collate)
    test_order = sorted(range(len(test)), key=test.lengths.__getitem__)
    test_batches = [collate([test[i] for i in test_order[k:k + 50]]) for k in range(0, len(test), 50)]
    net = TraceNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        net.train()
        t0, total, seen = time.time(), 0.0, 0
        for x, lengths, kind in loader:
            loss = nn.functional.cross_entropy(net(x, lengths), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(kind)
            seen += len(kind)
        net.eval()
        with torch.no_grad():
            right = sum((net(x, n).argmax(1) == k).sum().item() for x, n, k in test_batches)
        print(f"epoch {epoch}: loss {total / seen:.4f}  test accuracy {right / len(test):.3f}  {time.time() - t0:.1f} s")


main()
