import random

import numpy as np
import torch
from torch.utils.data import Dataset


class Signs(Dataset):
    """Signs under changing light; the table of light conditions is made by whoever needs it first."""

    def __init__(self, n, classes=10, side=20):
        rng = np.random.default_rng(3)
        self.labels = rng.integers(0, classes, n)
        self.images = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
        self.images[np.arange(n), :4, :4] = (self.labels * 25)[:, None, None, None]
        self.light = None

    def make_light(self):
        rnd = random.Random(7)
        table = []
        for _ in range(500):
            gamma, gain = rnd.uniform(0.5, 2.0), rnd.uniform(0.7, 1.3)
            table.append([min(255, int(255 * gain * (v / 255) ** gamma)) for v in range(256)])
        return np.array(table, dtype=np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        if self.light is None:
            self.light = self.make_light()
        lit = self.light[torch.randint(len(self.light), ()).item()][self.images[i]]
        return torch.from_numpy(lit).permute(2, 0, 1).float() / 255, int(self.labels[i])
