"""Tell a worn bearing from a good one by its vibration."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 4000


def record(rng, worn, seconds=1.0):
    t = np.arange(int(RATE * seconds)) / RATE
    signal = np.sin(2 * np.pi * 50 * t) + rng.normal(0, 0.4, len(t))
    if worn:
        signal += 0.6 * np.sin(2 * np.pi * 50 * t) * np.sin(2 * np.pi * 830 * t)
    return signal


class Recordings(Dataset):
    def __init__(self, n, window=256, hop=64):
        rng = np.random.default_rng(9)
        self.labels = rng.integers(0, 2, n)
        self.signals = [record(rng, label) for label in self.labels]
        self.window, self.hop = window, hop
        self.done = {}

    def __len__(self):
        return len(self.signals)

    def envelope_spectrum(self, signal):
        spectrum = np.fft.fft(signal)
        spectrum[len(signal) // 2 :] = 0
        envelope = np.abs(np.fft.ifft(2 * spectrum))
        starts = range(0, len(signal) - self.window, self.hop)
        frames = np.stack([envelope[s : s + self.window] * np.hanning(self.window) for s in starts])
        return np.log1p(np.abs(np.fft.rfft(frames, axis=1)))[:, :64]

    def __getitem__(self, i):
        if i not in self.done:
            self.done[i] = torch.from_numpy(self.envelope_spectrum(self.signals[i])).float()
        return self.done[i], int(self.labels[i])


class Bearing(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.mix = nn.Conv1d(width, width, 5, padding=2)
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        h = torch.relu(self.first(x)).transpose(1, 2)
        return self.last(torch.relu(self.mix(h)).amax(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(2)
    loader = DataLoader(Recordings(640), batch_size=16, shuffle=True)
    model = Bearing()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 640:.3f}")


if __name__ == "__main__":
    main()
