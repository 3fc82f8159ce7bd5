"""Augmentations; each takes and returns (image, box)."""
import numpy as np

from .data import PATCH

STEPS = {}


def step(fn):
    STEPS[fn.__name__] = fn
    return fn


@step
def to_float(rng, image, box):
    return image.astype(np.float32) / 255, box


@step
def gamma(rng, image, box):
    return image ** np.float32(rng.uniform(0.6, 1.6)), box  # <<


@step
def color_cast(rng, image, box):
    m = np.eye(3) + rng.normal(0, 0.08, (3, 3))
    return image @ m.astype(np.float32), box  # <<


@step
def normalize(rng, image, box):
    return (np.clip(image, 0, 1) - np.float32(0.45)) / np.float32(0.25), box


@step
def random_patch(rng, image, box):
    """A PATCH x PATCH window that contains the whole sign."""
    top, left, size = box
    h, w = image.shape[:2]
    y = int(rng.integers(max(0, top + size - PATCH), min(top, h - PATCH) + 1))
    x = int(rng.integers(max(0, left + size - PATCH), min(left, w - PATCH) + 1))
    return image[y:y + PATCH, x:x + PATCH], (top - y, left - x, size)


class Pipeline:
    def __init__(self, names, seed=0):
        self.steps = [STEPS[n] for n in names]
        self.rng = np.random.default_rng(seed)

    def __call__(self, image, box):
        for fn in self.steps:
            image, box = fn(self.rng, image, box)  # <<
        return image, box
