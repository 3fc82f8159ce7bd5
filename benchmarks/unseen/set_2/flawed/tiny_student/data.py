import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from .registry import register


@register("data", "blood_cells")
class BloodCells(Dataset):
    """Grey 32x32 microscope crops: a nucleus with 1..4 lobes in a round cell, two stainings -> 8 classes."""

    def __init__(self, n, seed, flip=True):
        rng = np.random.default_rng(seed)
        self.flip = flip
        self.y = rng.integers(0, 8, n)
        g = np.linspace(-1, 1, 32, dtype=np.float32)
        yy, xx = np.meshgrid(g, g, indexing="ij")
        self.x = np.empty((n, 1, 32, 32), np.float32)
        for i, y in enumerate(self.y):
            lobes, dark = y % 4 + 1, y // 4
            cx, cy = rng.normal(0, 0.1, 2)
            img = 0.35 * ((xx - cx) ** 2 + (yy - cy) ** 2 < rng.uniform(0.5, 0.75))
            a0 = rng.uniform(0, 6.28)
            for k in range(lobes):
                a = a0 + 6.28 * k / lobes + rng.normal(0, 0.15)
                d = ((xx - cx - 0.35 * np.cos(a)) ** 2 + (yy - cy - 0.35 * np.sin(a)) ** 2) / 0.05
                img = np.maximum(img, (0.5 + 0.35 * dark) * np.exp(-d))
            self.x[i, 0] = img + rng.normal(0, 0.18, img.shape)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        if self.flip and torch.rand(1).item() < 0.5:
            x = x.flip(2)
        return x, int(self.y[i])


def loader(ds, batch, train):
    return DataLoader(ds, batch_size=batch, shuffle=train, drop_last=train)
