"""Keyword spotting on one-second clips: log-mel features and a small depthwise-separable CNN."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORDS = ["yes", "no", "up", "down", "left", "right", "stop", "go", "on", "off"]


class LogMel:
    """STFT -> triangular mel filters -> log."""

    def __init__(self, sample_rate=8000, n_fft=400, hop=160, n_mels=40, f_min=20.0, f_max=None):
        self.n_fft = n_fft
        self.hop = hop
        f_max = f_max or sample_rate / 2
        self.window = torch.hann_window(n_fft)
        self.bank = self._filters(sample_rate, n_fft, n_mels, f_min, f_max)  # <<

    @staticmethod
    def _filters(sample_rate, n_fft, n_mels, f_min, f_max):
        def to_mel(f):
            return 2595.0 * math.log10(1.0 + f / 700.0)

        def to_hz(m):
            return 700.0 * (10 ** (m / 2595.0) - 1.0)

        lo, hi = to_mel(f_min), to_mel(f_max)
        centres = [to_hz(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)]
        bins = [k * sample_rate / n_fft for k in range(n_fft // 2 + 1)]
        bank = torch.zeros(n_mels, len(bins))
        for m in range(n_mels):
            left, mid, right = centres[m:m + 3]
            for k, f in enumerate(bins):  # <<
                if left < f <= mid:  # <<
                    bank[m, k] = (f - left) / (mid - left)
                elif mid < f < right:
                    bank[m, k] = (right - f) / (right - mid)
        return bank

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(self.bank @ spec.abs().pow(2) + 1e-6)


class SpokenWords(Dataset):
    def __init__(self, n_clips, seed, sample_rate=8000, train=True):
        rng = np.random.default_rng(seed)
        self.sample_rate = sample_rate
        self.train = train
        self.labels = rng.integers(0, len(WORDS), n_clips)
        t = np.arange(sample_rate, dtype=np.float32) / sample_rate
        self.waves = np.empty((n_clips, sample_rate), dtype=np.int16)
        for i, y in enumerate(self.labels):
            f0 = 150 + 70 * y + rng.normal(0, 8)
            sweep = rng.uniform(-60, 60)
            tone = np.sin(2 * np.pi * (f0 * t + 0.5 * sweep * t * t)) + 0.4 * np.sin(4 * np.pi * f0 * t)
            env = np.exp(-((t - rng.uniform(0.3, 0.7)) ** 2) / 0.02)
            noise = rng.standard_normal(sample_rate, dtype=np.float32) * 0.15
            self.waves[i] = np.clip((tone * env * 0.5 + noise) * 12000, -32767, 32767)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        wave = torch.from_numpy(self.waves[i].astype(np.float32) / 32768.0)
        if self.train:
            wave = torch.roll(wave, int(torch.randint(-800, 800, (1,))))
            wave = wave * float(torch.empty(1).uniform_(0.6, 1.2))
        to_mel = LogMel(self.sample_rate)  # <<
        return to_mel(wave).unsqueeze(0), int(self.labels[i])


def ds_block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False), nn.BatchNorm2d(cin), nn.ReLU(),
        nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class DSCNN(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, (10, 4), 2, (5, 1), bias=False),
                                  nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(*[ds_block(width, width) for _ in range(4)])
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def evaluate(model, loader):
    model.eval()
    good = seen = 0
    with torch.no_grad():
        for x, y in loader:
            good += (model(x).argmax(1) == y).sum().item()
            seen += len(y)
    model.train()
    return good / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=2000)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()

    torch.manual_seed(7)
    train = DataLoader(SpokenWords(args.clips, seed=1), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(SpokenWords(300, seed=2, train=False), 100)
    model = DSCNN().to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        t0 = time.time()
        total = 0.0
        for x, y in train:
            x = x.to(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        acc = evaluate(model, test)
        print(f"epoch {epoch + 1}: loss {total / len(train):.4f}  test acc {acc:.3f}  ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
