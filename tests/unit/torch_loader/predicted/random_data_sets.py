"""Data sets whose samples are random in many ways, with the loader and the training step that each is used in."""

import functools
import random
import time
from dataclasses import dataclass, field

import numpy
import torch
from tests.torchvision_stub import torchvision
from torch.utils.data import BatchSampler, Dataset, RandomSampler, WeightedRandomSampler
from torchvision import transforms as v1
from torchvision.transforms import v2

__all__ = ["CASES", "Case", "Images"]

SLOW_S = 0.0005
SAMPLES, BATCH = 50, 4
OF_THE_MODULE = numpy.random.default_rng(11)
assert torchvision


class Images(Dataset):
    """Small images under a transform; each takes a moment, which costs no processor."""

    def __init__(self, transform, length=SAMPLES, dtype=torch.float32):
        self.images = (torch.arange(length * 3 * 12 * 12).reshape(length, 3, 12, 12) % 251).to(torch.uint8)
        if dtype != torch.uint8:
            self.images = self.images.to(dtype) / 255
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        time.sleep(SLOW_S)
        return self.transform(self.images[index]), index % 5


class Pictures(Images):
    """The same as Pillow's images."""

    def __getitem__(self, index):
        time.sleep(SLOW_S)
        picture = v1.functional.to_pil_image(self.images[index])
        return self.transform(picture), index % 5


class Together(Images):
    """Gives several samples at once."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Named(Images):
    """Samples of several kinds of things."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        scores = numpy.full(3, random.random())
        return {"x": image.double(), "half": image.bfloat16(), "name": f"image {index}", "scores": scores, "y": label}


@dataclass
class Case:
    """A data set, the loader's arguments and what a training step draws."""

    make: object
    loader: object = dict
    step: object = None
    least: float = 0.3  # share of batches from workers, where nothing disturbs
    collate: object = None
    size: int | None = BATCH
    more: dict = field(default_factory=dict)


def three_streams(image):
    return image * random.uniform(0.8, 1.2) + numpy.random.uniform(-0.1, 0.1) + 0.01 * torch.rand(3, 12, 12)


def varied(image):
    return image + random.randint(0, 4) + random.choice([1.0, 2.0, 3.0])


def varied_by_numpy(image):
    return image + float(numpy.random.randn()) + numpy.random.randint(0, 5)


def with_second_normal(image):
    return image + random.gauss(0, 1)


def by_torch_normal(image):
    return image + torch.randn(()) + torch.randn(3, 12, 12) + torch.normal(0.0, 1.0, (1,), dtype=torch.float64).float()


def half_draw_more(image):
    return image + (torch.rand(()) if random.random() < 0.5 else 0.0)


def few_draw_more(image):
    return image + torch.rand(()) + (random.random() if float(image.sum()) % 40 < 1 else 0.0)


def shuffled(image):
    order = list(range(12))
    random.shuffle(order)
    return image[:, order, :]


def reseeded(image):
    torch.manual_seed(int(image.sum()) % 1000)
    return image + torch.rand(3, 12, 12)


def of_module(image):
    return image + float(OF_THE_MODULE.random())


class Held:
    """A transform with a generator of its own, of which it asks what `draw` says."""

    def __init__(self, generator, draw):
        self.generator, self.draw = generator, draw

    def __call__(self, image):
        return image + float(self.draw(self.generator))


def held(make, draw):
    return lambda: Images(Held(make(), draw))


def in_closure():
    rng = numpy.random.default_rng(3)
    return Images(lambda image: image + float(rng.uniform()))


def bound():
    return Images(functools.partial(_by_bound, random.Random(8).random))


def _by_bound(draw, image):
    return image + draw()


def images(*transforms, kind=Images, dtype=torch.float32):
    def make():
        one = transforms[0] if len(transforms) == 1 else v1.Compose(list(transforms))
        return kind(one) if kind is not Images else Images(one, dtype=dtype)

    return make


def mixed(samples):
    x, y = torch.utils.data.default_collate(samples)
    return x * random.random() + x.flip(0) * float(torch.rand(())), y


def ragged(samples):
    return [image.flatten()[: random.randrange(1, 40)].clone() for image, _ in samples], [y for _, y in samples]


def arrays(samples):
    return numpy.stack([image.numpy() for image, _ in samples]) + numpy.random.rand(), numpy.array(
        [y for _, y in samples]
    )


def by_python():
    random.random()


def variably():
    for _ in range(random.randrange(3)):
        torch.rand(1)


def own_generator():
    return {"shuffle": True, "generator": torch.Generator().manual_seed(4)}


CASES = {
    "v1 crop and flip": Case(images(v1.RandomCrop(10), v1.RandomHorizontalFlip())),
    "v1 resized crop": Case(images(v1.RandomResizedCrop(8, antialias=True))),
    "v1 color jitter": Case(images(v1.ColorJitter(0.3, 0.3, 0.3))),
    "v1 affine": Case(images(v1.RandomAffine(20, (0.1, 0.1), (0.8, 1.2)))),
    "v1 erasing": Case(images(v1.RandomErasing(0.7))),
    "v1 random apply": Case(images(v1.RandomApply([v1.GaussianBlur(3)], 0.5))),
    "v1 rand augment": Case(images(v1.RandAugment(2), dtype=torch.uint8)),
    "v1 pictures": Case(images(v1.RandomCrop(10), v1.RandomRotation(10), v1.ToTensor(), kind=Pictures)),
    "v2 crop and flip": Case(images(v2.RandomCrop(10), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip())),
    "v2 resized crop": Case(images(v2.RandomResizedCrop(8, antialias=True), v2.ToDtype(torch.float32))),
    "v2 photometric": Case(images(v2.RandomPhotometricDistort())),
    "v2 affine": Case(images(v2.RandomAffine(20, (0.1, 0.1)))),
    "v2 erasing": Case(images(v2.RandomErasing(0.7))),
    "v2 trivial augment": Case(images(v2.TrivialAugmentWide(), dtype=torch.uint8)),
    "v2 mix-up in collate": Case(
        images(v2.RandomHorizontalFlip()),
        collate=lambda samples: v2.MixUp(num_classes=5)(*torch.utils.data.default_collate(samples)),
    ),
    "three streams": Case(images(three_streams), least=0.6),
    "three streams, python in the step": Case(images(three_streams), step=by_python, least=0.6),
    "three streams, a step that varies": Case(images(three_streams), step=variably, least=0.0),
    "variable: randint, choice": Case(images(varied)),
    "variable: numpy's normal, randint": Case(images(varied_by_numpy)),
    "second normal number": Case(images(with_second_normal), size=5),
    "torch's normal numbers": Case(images(by_torch_normal)),
    "half of the samples draw more": Case(images(half_draw_more)),
    "few samples draw more": Case(images(few_draw_more)),
    "shuffled rows": Case(images(shuffled)),
    "seeded by the sample": Case(images(reseeded)),
    "PCG64": Case(held(lambda: numpy.random.default_rng(2), lambda rng: rng.random()), least=0.6),
    "PCG64, halves and normals": Case(
        held(lambda: numpy.random.default_rng(2), lambda rng: rng.integers(0, 9) + rng.normal()), size=5
    ),
    "PCG64DXSM": Case(held(lambda: numpy.random.Generator(numpy.random.PCG64DXSM(1)), lambda rng: rng.random())),
    "SFC64": Case(held(lambda: numpy.random.Generator(numpy.random.SFC64(1)), lambda rng: rng.random())),
    "Generator on MT19937": Case(
        held(lambda: numpy.random.Generator(numpy.random.MT19937(1)), lambda rng: rng.random())
    ),
    "RandomState": Case(held(lambda: numpy.random.RandomState(3), lambda state: state.rand() + state.randn())),
    "random.Random": Case(held(lambda: random.Random(4), lambda rng: rng.uniform(1, 2)), least=0.6),
    "torch.Generator": Case(
        held(lambda: torch.Generator().manual_seed(6), lambda rng: torch.rand((), generator=rng)), least=0.6
    ),
    "generator of the module": Case(images(of_module), least=0.6),
    "generator in a closure": Case(in_closure, least=0.6),
    "method of a generator": Case(bound, least=0.6),
    "generator= of the loader": Case(images(three_streams), own_generator, least=0.6),
    "batch sampler": Case(
        images(three_streams),
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(SAMPLES)), 5, drop_last=False)},
        size=None,
        least=0.6,
    ),
    "list of batches": Case(
        images(three_streams),
        lambda: {"batch_sampler": [list(range(at, at + 3 + at % 3)) for at in range(0, 45, 3)]},
        size=None,
    ),
    "drop last": Case(images(three_streams), lambda: {"shuffle": True, "drop_last": True}, least=0.6),
    "in order": Case(images(three_streams), least=0.6, loader=lambda: {"shuffle": False}),
    "weighted sampler": Case(
        images(three_streams), lambda: {"sampler": WeightedRandomSampler([1.0, 2.0] * 25, SAMPLES)}, least=0.6
    ),
    "several at once": Case(images(three_streams, kind=Together), least=0.6),
    "collate draws": Case(images(three_streams), collate=mixed, least=0.6),
    "ragged batches": Case(images(three_streams), collate=ragged),
    "arrays": Case(images(three_streams), collate=arrays, least=0.6),
    "named parts": Case(images(three_streams, kind=Named), least=0.6),
}
