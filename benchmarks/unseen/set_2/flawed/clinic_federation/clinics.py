import numpy as np
import torch
from torch.utils.data import TensorDataset

FREQS, FRAMES, LABELS = 20, 48, 4


def make_clinic(seed, n):
    """Spectrogram-like features; each clinic has its own microphone and label shares."""
    rng = np.random.default_rng(seed)
    shared = np.random.default_rng(0).normal(0, 1, (LABELS, FREQS, FRAMES))
    shares = rng.dirichlet(np.full(LABELS, 2.0))
    y = rng.choice(LABELS, n, p=shares)
    microphone = rng.normal(0, 0.3, (FREQS, 1))
    x = 0.25 * shared[y] + microphone + rng.normal(0, 1, (n, FREQS, FRAMES))
    return TensorDataset(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y))


def federation(clinics=12, seed=100):
    sizes = np.random.default_rng(seed).integers(180, 320, clinics)
    return [make_clinic(seed + i, int(n)) for i, n in enumerate(sizes)], make_clinic(seed + 999, 600)
