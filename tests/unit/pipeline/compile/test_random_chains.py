"""Loaders of random transforms: batches made at once are those of the plain loader, and so are the random streams."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.programs import Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader
from flatout.pipeline.serve import input_facts

T = torchvision.transforms
v2 = pytest.importorskip("torchvision.transforms.v2")

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker")  # said where there is one core

RGB = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


class Pictures(Dataset):
    """Images of the script's own, opened by PIL."""

    def __init__(self, transform, sides=((12, 12),)):
        self.sides, self.transform = sides, transform

    def __len__(self):
        return 26

    def __getitem__(self, index):
        side = self.sides[index % len(self.sides)]
        pixels = np.random.RandomState(index).randint(0, 256, (*side, 3), dtype=np.uint8)
        return self.transform(Image.fromarray(pixels)), index % 4


class Rows(Dataset):
    """Images of the script's own that take less time to read than to be handed over by a worker."""

    def __init__(self, transform):
        self.images = torch.randint(0, 256, (26, 3, 12, 12), generator=torch.Generator().manual_seed(0)).byte()
        self.transform = transform

    def __len__(self):
        return 26

    def __getitem__(self, index):
        return self.transform(self.images[index]), index % 4


def test_workers_stay_where_what_threads_would_read_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(input_facts, "num_reading", lambda reader, length: 2)  # decoding is faster on two threads
    transform = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])
    loader = DataLoader(Pictures(transform), batch_size=4, num_workers=1)
    assert "samples kept" in compile_loader(loader).explain()
    assert "more memory than the budget allows" in compile_loader(loader, max_bytes=100).explain()
    alone = DataLoader(Pictures(transform), batch_size=4)
    assert "made in batches" in compile_loader(alone, max_bytes=100).explain()


def both(generation):
    """Return the operations that end a chain: to floats, normalized."""
    if generation is T:
        return [T.ToTensor(), T.Normalize(*RGB)]
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*RGB)]


def chains(generation):
    G, end = generation, both(generation)
    jitter = G.ColorJitter(0.4, 0.4, 0.4, 0.1)
    return {
        "flip": [G.RandomHorizontalFlip(), *end],
        "cifar": [G.RandomCrop(12, padding=4), G.RandomHorizontalFlip(), *end],
        "imagenet": [G.RandomResizedCrop(8), G.RandomHorizontalFlip(), *end],
        "erased": [G.RandomCrop(10, padding=1), G.RandomHorizontalFlip(), jitter, *end, G.RandomErasing(0.7)],
        "noise": [*end, G.RandomErasing(0.7, value="random"), G.RandomVerticalFlip()],
        "contrastive": [
            G.RandomResizedCrop(9, scale=(0.2, 1.0)),
            G.RandomApply([jitter], p=0.8),
            G.RandomGrayscale(0.2),
            G.RandomApply([G.GaussianBlur(3, (0.1, 2.0))], p=0.5),
            G.RandomHorizontalFlip(),
            *end,
        ],
        "turned": [G.Resize(14), G.RandomRotation(15), G.CenterCrop(10), G.RandomAffine(0, (0.1, 0.1)), *end],
        "resized-between": [G.RandomHorizontalFlip(), G.Resize(9), G.RandomCrop((9, 7), padding=2), *end],
    }


def cifar(transform):
    """Return torchvision's data set with images of our own, all in memory: also done at once in place of workers."""
    made = torchvision.datasets.CIFAR10.__new__(torchvision.datasets.CIFAR10)
    made.data = np.random.RandomState(0).randint(0, 256, (26, 12, 12, 3), dtype=np.uint8)
    made.targets = [index % 4 for index in range(26)]
    made.transform, made.target_transform = transform, None
    return made


@pytest.mark.parametrize(("images", "workers"), [(Pictures, 0), (cifar, 0), (cifar, 2)])
@pytest.mark.parametrize("generation", [T, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", chains(T))
@pytest.mark.few(7)
@pytest.mark.slow
def test_random_chains_give_the_plain_loaders_batches_and_streams(name, generation, images, workers):
    dataset = images(generation.Compose(chains(generation)[name]))
    loader = agree(Program(dataset, {"batch_size": 7, "shuffle": True, "num_workers": workers}))
    assert loader.explain().startswith("made in batches"), loader.explain()


@pytest.mark.slow
def test_what_is_read_quickly_needs_no_workers():
    chain = [v2.RandomCrop(10, padding=1), v2.RandomHorizontalFlip(), *both(v2)[1:]]
    loader = agree(Program(Rows(v2.Compose(chain)), {"batch_size": 7, "shuffle": True, "num_workers": 2}))
    assert loader.explain().startswith("made in batches"), loader.explain()


@pytest.mark.parametrize("generation", [T, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["imagenet", "contrastive"])
@pytest.mark.slow
def test_images_of_several_sizes_are_drawn_for_with_their_own(name, generation):
    chain = [generation.RandomVerticalFlip(), *chains(generation)[name]]
    dataset = Pictures(generation.Compose(chain), sides=((12, 12), (9, 21), (30, 8)))
    loader = agree(Program(dataset, {"batch_size": 7, "shuffle": True}))
    assert loader.explain().startswith("made in batches"), loader.explain()


@pytest.mark.parametrize(
    "operation",
    [
        T.RandomPerspective(),
        T.RandomChoice([T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
        T.RandomOrder([T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
    ],
    ids=["no kernel", "Python's choice", "Python's order"],
)
def test_what_cannot_be_drawn_alike_is_done_by_the_original_to_images_that_are_kept(operation):
    loader = agree(Program(Pictures(T.Compose([operation, *both(T)])), {"batch_size": 7}))
    assert "26 samples kept" in loader.explain()
    assert "before their random operations" in loader.explain()


@pytest.mark.slow
def test_what_cannot_be_drawn_alike_is_left_to_the_scripts_workers():
    dataset = Pictures(T.Compose([T.RandomPerspective(), *both(T)]))
    assert "draws random numbers" in agree(Program(dataset, {"batch_size": 7, "num_workers": 2})).explain()
