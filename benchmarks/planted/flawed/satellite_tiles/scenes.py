import numpy as np
import torch
from torch.utils.data import Dataset

BANDS = ("blue", "green", "red", "nir", "swir")


def simulate(n, side, seed=4):
    rng = np.random.default_rng(seed)
    cover = rng.integers(0, 6, n)
    scenes = rng.gamma(3.0, 400.0, (n, len(BANDS), side, side)).astype(np.float32)
    scenes[np.arange(n), cover % len(BANDS)] *= 1.4
    return scenes.clip(0, 10000).astype(np.uint16), cover


def stretch(band, low=2, high=98):
    """Map the darkest and brightest percent of a band to 0 and 1."""
    values = sorted(float(v) for v in band.ravel())  # <<
    floor = values[len(values) * low // 100]
    ceiling = values[len(values) * high // 100]
    return np.clip((band.astype(np.float32) - floor) / max(ceiling - floor, 1.0), 0, 1)


class Scenes(Dataset):
    def __init__(self, n, side=32):
        self.raw, self.cover = simulate(n, side)

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        scene = np.stack([stretch(band) for band in self.raw[i]])  # <<
        if np.random.rand() < 0.5:
            scene = scene[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(scene)), int(self.cover[i])
