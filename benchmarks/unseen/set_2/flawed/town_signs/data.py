"""Synthetic street scenes: one sign per picture, its class and its box."""
import numpy as np
import torch
from torch.utils.data import Dataset

H, W = 200, 260
PATCH = 96
CLASSES = 4


def make_scene(rng):
    coarse = rng.integers(40, 200, (10, 13, 3), dtype=np.uint8)
    scene = coarse.repeat(20, 0).repeat(20, 1).copy()
    scene ^= rng.integers(0, 16, scene.shape, dtype=np.uint8)
    size = int(rng.integers(18, 40))
    top, left = int(rng.integers(0, H - size)), int(rng.integers(0, W - size))
    kind = int(rng.integers(CLASSES))
    yy, xx = np.mgrid[-1:1:size * 1j, -1:1:size * 1j]
    shape = [yy ** 2 + xx ** 2 < 1, abs(xx) + abs(yy) < 1, yy > 2 * abs(xx) - 1, np.ones_like(xx, bool)][kind]
    scene[top:top + size, left:left + size][shape] = (210, 30, 40) if kind % 2 else (30, 60, 210)
    return scene, kind, (top, left, size)


class StreetSigns(Dataset):
    def __init__(self, n, seed, pipeline):
        rng = np.random.default_rng(seed)
        self.items = [make_scene(rng) for _ in range(n)]
        self.pipeline = pipeline

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        scene, kind, box = self.items[i]
        image, box = self.pipeline(scene, box)  # <<
        top, left, size = box
        target = torch.tensor([top / PATCH, left / PATCH, size / PATCH])
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), kind, target
