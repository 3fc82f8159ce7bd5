import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.images = torch.from_numpy(rng.random((n, 1, 96, 96), dtype=np.float32))
        self.scale = torch.from_numpy(rng.uniform(1, 3, n).astype(np.float32))
        self.bank = torch.from_numpy(rng.normal(size=(8, 1, 7, 7)).astype(np.float32)) / 7

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        sigma = self.scale[i] * (1 + 0.1 * torch.rand(()))
        x = self.images[i : i + 1]
        responses = F.conv2d(x, self.bank / sigma, padding=3)
        energy = responses.pow(2).sqrt().log1p().sin()
        return F.avg_pool2d(energy, 8)[0], self.scale[i]


def all_cores(worker_id):
    torch.set_num_threads(8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Textures(640), 8, True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8 * 144, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        for features, scale in loader:
            loss = F.mse_loss(model(features).squeeze(1), scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
