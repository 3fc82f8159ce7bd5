import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __init__(self, n=640, points=600):
        rng = np.random.default_rng(6)
        self.target = rng.uniform(0.1, 1, n).astype(np.float32)
        grid = np.linspace(0, 1, points)
        peaks = np.exp(-((grid - self.target[:, None]) ** 2) / 0.002)
        self.spectra = (peaks + 0.1 * rng.normal(size=peaks.shape)).astype(np.float32)
        self.baseline = None

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        shift = np.random.uniform(0.95, 1.05)
        return torch.from_numpy(self.spectra[i] * np.float32(shift) - self.baseline), self.target[i]


def init_worker(worker_id):
    """Each worker fits its own baseline polynomial."""
    info = torch.utils.data.get_worker_info()
    data = info.dataset
    powers = np.vander(np.linspace(0, 1, 600), 8)
    fits = [np.linalg.lstsq(powers, s, rcond=None)[0] for s in data.spectra]
    data.baseline = (powers @ np.mean(fits, axis=0)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Spectra(), 32, shuffle=True, num_workers=2, worker_init_fn=init_worker)  # <<
    net = nn.Sequential(
        nn.Unflatten(1, (1, 600)), nn.Conv1d(1, 32, 9, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 9, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(256, 1),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:  # <<
            loss = nn.functional.mse_loss(net(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:3d}  mse {total / len(loader):.5f}")


if __name__ == "__main__":
    main()
