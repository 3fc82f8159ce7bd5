"""Bird's-eye pictures of a car park: predict the centre and the extent of each car."""
import numpy as np
import torch
from torch.utils.data import Dataset

SIZE, CELL = 96, 8
GRID = SIZE // CELL


class Lot(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(90, 130, (count, 3, SIZE, SIZE), dtype=np.uint8)
        self.targets = np.zeros((count, 5, GRID, GRID), dtype=np.float32)
        for i in range(count):
            for _ in range(rng.integers(3, 10)):
                w, h = (10, 18) if rng.random() < 0.5 else (18, 10)
                x, y = int(rng.integers(0, SIZE - w)), int(rng.integers(0, SIZE - h))
                self.images[i, :, y:y + h, x:x + w] = rng.integers(0, 255, (3, 1, 1))
                cx, cy = (x + w / 2) / CELL, (y + h / 2) / CELL
                gx, gy = int(cx), int(cy)
                self.targets[i, :, gy, gx] = 1.0, cx - gx, cy - gy, w / SIZE, h / SIZE

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = torch.from_numpy(self.images[i]).float().div_(255)
        return x, torch.from_numpy(self.targets[i])
