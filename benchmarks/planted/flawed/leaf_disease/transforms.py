import numpy as np
import torch


class Chain:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Gamma:
    def __init__(self, gamma):
        table = [int(255 * (v / 255) ** gamma) for v in range(256)]
        self.table = table

    def __call__(self, image):
        flat = [self.table[v] for v in image.reshape(-1)]  # <<
        return np.array(flat, dtype=np.uint8).reshape(image.shape)  # <<


class RandomFlip:
    def __call__(self, image):
        if torch.rand(()) < 0.5:
            image = image[:, ::-1]
        return image


class ToFloat:
    def __call__(self, image):
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float().div_(255)
