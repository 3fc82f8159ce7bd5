"""Phase picking on three-component seismograms, U-Net in one dimension, augmentation in two workers."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SAMPLES = 1024


class Quakes(Dataset):
    """Noise and onsets are drawn anew for every item, so nothing can be prepared beforehand."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.sources = rng.normal(0, 1, (n, 3, 2 * SAMPLES)).astype(np.float32)
        self.freq = rng.uniform(0.02, 0.12, n).astype(np.float32)

    def __len__(self):
        return len(self.freq)

    def __getitem__(self, i):
        p = int(torch.randint(100, 500, (1,)))
        s = p + int(torch.randint(80, 400, (1,)))
        t = np.arange(SAMPLES, dtype=np.float32)
        wave = np.zeros((3, SAMPLES), dtype=np.float32)
        for onset, size, slow in ((p, 1.0, 1.0), (s, 2.5, 0.6)):
            after = np.clip(t - onset, 0, None)
            envelope = (after > 0) * np.exp(-after / 150) * size
            wave += envelope * np.sin(2 * np.pi * self.freq[i] * slow * after) * self.sources[i, :, :1]
        cut = int(torch.randint(0, SAMPLES, (1,)))
        wave += float(torch.empty(1).uniform_(0.05, 0.4)) * self.sources[i, :, cut:cut + SAMPLES]
        wave /= wave.std() + 1e-6
        label = np.stack([np.exp(-0.5 * ((t - o) / 8) ** 2) for o in (p, s)])
        return torch.from_numpy(wave), torch.from_numpy(label.astype(np.float32))


class PickNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        def unit(i, o, stride=1):
            return nn.Sequential(nn.Conv1d(i, o, 7, stride, 3, bias=False), nn.BatchNorm1d(o), nn.ReLU(inplace=True))
        self.inp, self.d1, self.d2 = unit(3, c), unit(c, 2 * c, 4), unit(2 * c, 3 * c, 4)
        self.u1, self.u2 = unit(5 * c, 2 * c), unit(3 * c, c)
        self.out = nn.Conv1d(c, 2, 1)

    def forward(self, x):
        a = self.inp(x)
        b = self.d1(a)
        c = self.d2(b)
        b = self.u1(torch.cat([F.interpolate(c, scale_factor=4), b], 1))
        return self.out(self.u2(torch.cat([F.interpolate(b, scale_factor=4), a], 1)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=3200)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(6)
    loader = DataLoader(Quakes(a.events, 6), a.batch, shuffle=True, drop_last=True, num_workers=a.workers,
                        persistent_workers=a.workers > 0)
    net = PickNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    weight = torch.tensor(10.0)
    for epoch in range(a.epochs):
        tic, total = time.time(), 0.0
        for i, (x, y) in enumerate(loader):
            loss = F.binary_cross_entropy_with_logits(net(x), y, pos_weight=weight)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item()
            if i % 20 == 0:
                print(f"epoch {epoch} [{i}/{len(loader)}] {loss.item():.4f}")
        print(f"epoch {epoch}: {total / len(loader):.4f} in {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
