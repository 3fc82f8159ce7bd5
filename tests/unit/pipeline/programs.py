"""Small input pipelines as people write them, and what a training sees of one: batches, and random states."""

import copy
import random
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from flatout.watch.dataset_state import random_states

Pair = namedtuple("Pair", "image label")


class Images(Dataset):
    """Arrays in memory, a transform, several shapes of sample."""

    def __init__(self, length, transform=None, form="tuple", side=5):
        self.data = np.random.RandomState(0).randint(0, 256, (length, side, side, 3), dtype=np.uint8)
        self.transform = transform or scaled
        self.form = form

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, label = self.transform(self.data[index]), index % 7
        return {
            "tuple": (image, label),
            "dict": {"image": image, "label": label, "name": f"image {index}", "weight": 0.5 * index},
            "nested": (image, {"label": np.int64(label), "box": [index, index + 1]}),
            "named": Pair(image, torch.tensor(label)),
            "tensor": torch.as_tensor(image),
            "array": np.asarray(image),
        }[self.form]


class Ragged(Images):
    """Samples of different lengths."""

    def __getitem__(self, index):
        return torch.arange(1 + index % 4), index


class Batched(Images):
    """A data set that is asked for many samples at once."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Counting(Images):
    """Counts its calls."""

    calls = 0

    def __getitem__(self, index):
        self.calls += 1
        return super().__getitem__(index)


class SeldomRandom(Images):
    """Draws a random number for one sample only."""

    def __getitem__(self, index):
        image, label = torch.as_tensor(super().__getitem__(index)[0]), index
        return (image + torch.rand(())) if index == 2 else image, label


class OwnGenerator(Images):
    """Draws from a generator that it holds."""

    def __init__(self, length, **options):
        super().__init__(length, **options)
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index):
        return self.generator.random(3), index


def scaled(image):
    return torch.from_numpy(image).permute(2, 0, 1).float().div(255)


def viewed(image):
    return torch.from_numpy(image).permute(2, 0, 1)


def as_float64(image):
    return image / 255.0


def flipped(image):
    return torch.from_numpy(image[:, ::-1].copy() if random.random() < 0.5 else image)


def noisy(image):
    return torch.from_numpy(image) + torch.randn(3)


def jittered(image):
    return image * np.random.uniform(0.8, 1.2)


DETERMINISTIC = (scaled, viewed, as_float64)
RANDOM = (flipped, noisy, jittered)


def stacked(samples):
    return torch.stack([torch.as_tensor(sample[0]) for sample in samples]), [sample[1] for sample in samples]


def padded(samples):
    longest = max(len(sample[0]) for sample in samples)
    rows = [torch.nn.functional.pad(torch.as_tensor(sample[0]), (0, longest - len(sample[0]))) for sample in samples]
    return torch.stack(rows), torch.tensor([sample[1] for sample in samples])


def centred(samples):
    batch = torch.stack([torch.as_tensor(sample[0]).double() for sample in samples])
    return batch - batch.mean(0), torch.tensor([sample[1] for sample in samples])


class Ordered:
    """A sampler of the script's own, which draws from the global stream at every index."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        for index in range(self.length):
            yield (index + int(torch.randint(self.length, ()))) % self.length

    def __len__(self):
        return self.length


@dataclass
class Program:
    """How a loader is made, and what happens between its batches."""

    dataset: object
    options: dict = field(default_factory=dict)
    draws: bool = True  # the training draws random numbers between batches, as dropout does
    breaks_after: int = 0  # batches after which the second pass is left

    def seen(self, wrap=lambda loader: loader, passes=3):
        """Return every batch and the random states after each pass; `wrap` makes another loader of the script's."""
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        options = dict(self.options)
        if options.pop("own_generator", False):
            options["generator"] = torch.Generator().manual_seed(5)
        loader = wrap(DataLoader(copy.deepcopy(self.dataset), **options))
        seen = []
        for number in range(passes):
            for place, batch in enumerate(loader):
                seen.append(_copied(batch))
                _spoil(batch)
                if self.draws:
                    seen.append(torch.rand(2))
                if number == 1 and place + 1 == self.breaks_after:
                    break
            seen.append([np.asarray(state[1] if isinstance(state, tuple) else state) for state in random_states()])
        return seen, loader


def _copied(batch):
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: _copied(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        made = [_copied(value) for value in batch]
        return type(batch)(*made) if hasattr(batch, "_fields") else type(batch)(made)
    return batch


def _spoil(batch):
    """Write to a batch, as a training may."""
    if isinstance(batch, torch.Tensor):
        batch.zero_()
    for value in batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ():
        _spoil(value)


def datasets(length):
    """Return data sets of `length`, all of them the same each time."""
    whole = [Images(length, form=form) for form in ("tuple", "dict", "nested", "named", "tensor", "array")]
    rows = TensorDataset(torch.randn(length, 3), torch.arange(length))
    return [
        *whole,
        *(Images(length, transform) for transform in DETERMINISTIC),
        Batched(length),
        rows,
        Subset(Images(length + 3), range(length)),
        ConcatDataset([Images(length), Images(length, side=5)]),
        [(torch.tensor([float(index)]), index) for index in range(length)],
    ]
