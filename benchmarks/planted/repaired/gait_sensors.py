import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def record(folder, n):
    rng = np.random.default_rng(12)
    for i in range(n):
        walk = np.cumsum(rng.normal(size=(6, 1024)), axis=1) + np.sin(np.arange(1024) / (3 + i % 4)) * 4
        np.save(os.path.join(folder, f"{i:04d}_{i % 4}.npy"), walk.astype(np.float32))


class Gait(Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.memory = {}

    def __len__(self):
        return len(self.paths)

    def features(self, path):
        signal = np.load(path)
        kernel = np.hanning(65) / np.hanning(65).sum()
        smooth = np.stack([np.convolve(channel, kernel, mode="same") for channel in signal])
        trend = np.stack([np.polyval(np.polyfit(np.arange(1024), c, 3), np.arange(1024)) for c in smooth])
        spectrum = np.abs(np.fft.rfft(smooth - trend, axis=1))[:, :128]
        return torch.from_numpy(np.log1p(spectrum).astype(np.float32))

    def __getitem__(self, i):
        path = self.paths[i]
        label = int(os.path.basename(path)[5])
        if path not in self.memory:
            self.memory[path] = self.features(path)
        return self.memory[path], label


class Trainer:
    def __init__(self, model, loader, lr):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss = nn.CrossEntropyLoss()
        self.history = []

    def train_one_epoch(self):
        self.model.train()
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.history.append(self.train_one_epoch())
            print(f"epoch {epoch}: {self.history[-1]:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        record(folder, 320)
        net = nn.Sequential(
            nn.Conv1d(6, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 128, 5, padding=2), nn.ReLU(),
            nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(512, 4),
        )
        loader = DataLoader(Gait(folder), batch_size=16, shuffle=True)
        Trainer(net, loader, 1e-3).fit(args.epochs)
