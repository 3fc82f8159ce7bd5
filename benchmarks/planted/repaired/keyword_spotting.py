"""Keyword spotting on synthetic one second clips."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, num_clips, rate=8000):
        rng = np.random.default_rng(1)
        t = np.arange(rate, dtype=np.float32) / rate
        self.labels = rng.integers(0, 6, num_clips)
        pitch = 200 + 150 * self.labels + rng.normal(0, 10, num_clips)
        self.waves = np.sin(2 * np.pi * pitch[:, None].astype(np.float32) * t).astype(np.float32)
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        wave = np.roll(self.waves[index], np.random.randint(0, 800))
        wave = wave + 0.3 * np.random.standard_normal(wave.size)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64] * self.window
        power = np.abs(np.fft.rfft(frames, n=512, axis=-1)) ** 2
        spec = np.log(power[:, :80] + 1e-6).astype(np.float32)
        return torch.from_numpy(spec), int(self.labels[index])


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(80, 64, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, spec):
        return self.head(self.conv(spec.transpose(1, 2)).mean(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(3)
    np.random.seed(3)
    torch.set_num_threads(1)
    data = Clips(800)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for spec, label in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(spec), label)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: mean loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
