import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Utterances(Dataset):
    """Variable length feature sequences with one command label each."""

    def __init__(self, n=1000, features=40):
        rng = np.random.default_rng(4)
        self.labels = rng.integers(0, 8, n)
        self.items = []
        for label in self.labels:
            length = int(rng.integers(10, 26))
            ramp = np.linspace(0, label, length)[:, None]
            self.items.append((ramp + rng.normal(0, 1, (length, features))).astype(np.float32))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i], int(self.labels[i])


def collate(samples):
    lengths = torch.tensor([len(x) for x, _ in samples])
    labels = torch.tensor([y for _, y in samples])
    longest = int(lengths.max())
    padded = []
    for x, _ in samples:
        rows = [[float(v) for v in frame] for frame in x]  # <<
        while len(rows) < longest:
            rows.append([0.0] * x.shape[1])
        padded.append(rows)
    return torch.tensor(padded), lengths, labels  # <<


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(40, 64, batch_first=True)
        self.out = nn.Linear(64, 8)

    def forward(self, x, lengths):
        states, _ = self.gru(x)
        last = states[torch.arange(len(x)), lengths - 1]
        return self.out(last)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    loader = DataLoader(Utterances(), batch_size=16, shuffle=True, collate_fn=collate)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for it, (x, lengths, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            if it % 10 == 0:
                print(f"{epoch}/{it}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
