"""Data sets, transforms and collate functions as scripts have them: compiled they give what they gave, bit for bit."""

import random
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.compared import compared
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    DistributedSampler,
    Sampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)
from torchvision.transforms import v2

T = torchvision.transforms
NUMBER = 40

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker")  # said where there is one core


class Drawn(Dataset):
    """Images that cost a moment, and a transform."""

    def __init__(self, transform, side=24):
        self.transform, self.side = transform, side

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        pixels = np.random.RandomState(index).randint(0, 256, (self.side, self.side, 3), dtype=np.uint8)
        return self.transform(Image.fromarray(pixels)), index % 5


class Table(Dataset):
    """Rows of arrays in memory."""

    def __init__(self):
        drawn = np.random.RandomState(0)
        self.rows, self.labels = drawn.rand(NUMBER, 5).astype("float32"), drawn.randint(0, 4, NUMBER)

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


to_tensor = T.ToTensor()


def mirrored(image, share, seldom=0.03):
    image = to_tensor(image)
    return image.flip(-1) if share < seldom else image


# -- random generators that are nobody's attribute ------------------------------------------------------------------

HERE = random.Random(0)
ARRAYS = np.random.default_rng(0)


def through_here(image):
    return mirrored(image, HERE.random())


def through_another_function(image):
    return through_here(image)


class OfTheClass(Drawn):
    drawn = np.random.RandomState(0)

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return (image.flip(-1) if self.drawn.rand() < 0.03 else image), label


class InTheModule(Drawn):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image * ARRAYS.random(), label


class MadeAtFirst(Drawn):
    drawn = None

    def __getitem__(self, index):
        self.drawn = self.drawn or random.Random(3)
        image, label = super().__getitem__(index)
        return (image.flip(-1) if self.drawn.random() < 0.03 else image), label


class Slotted:
    __slots__ = ("drawn",)

    def __init__(self):
        self.drawn = random.Random(0)

    def __call__(self, image):
        return mirrored(image, self.drawn.random())


class Deep:
    def __init__(self):
        self.inner = {"a": [{"b": [{"c": [{"d": random.Random(0)}]}]}]}

    def __call__(self, image):
        return mirrored(image, self.inner["a"][0]["b"][0]["c"][0]["d"].random())


def by_default():
    def transform(image, drawn=random.Random(0)):  # noqa: B008
        return mirrored(image, drawn.random())

    drawn = transform.__defaults__[0]
    drawn.seed(0)
    return transform


def reset():
    HERE.seed(0)
    ARRAYS.bit_generator.state = np.random.default_rng(0).bit_generator.state
    OfTheClass.drawn.seed(0)


TRANSFORMS = {
    "the module's": lambda: through_here,
    "another function's": lambda: through_another_function,
    "a slot's": Slotted,
    "deep inside": Deep,
    "a default": by_default,
}


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.slow
def test_a_transform_draws_from_a_generator_of_its_own_as_it_did(kind):
    def build():
        reset()
        return Drawn(TRANSFORMS[kind]()), {}

    assert "before their random operations" in compared(build)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.few(3)
def test_in_workers_a_generator_of_its_own_is_left_alone(kind):
    def build():
        reset()
        return Drawn(TRANSFORMS[kind]()), {"num_workers": 2}

    assert "draws from a random generator of its own" in compared(build)


@pytest.mark.parametrize("kind", [OfTheClass, InTheModule, MadeAtFirst])
def test_a_generator_that_a_data_set_draws_from_stands_where_it_stood(kind):
    def build():
        reset()
        return kind(to_tensor), {}

    assert "left as it is" in compared(build)


# -- what counts ----------------------------------------------------------------------------------------------------

calls = 0


def counting_in_the_module(image):
    global calls
    calls += 1
    return to_tensor(image) * (1 + (calls > 30))


def counting_in_a_closure():
    number = 0

    def transform(image):
        nonlocal number
        number += 1
        return to_tensor(image) * (1 + (number > 30))

    return transform


class CountingInTheClass(Drawn):
    number = 0

    def __getitem__(self, index):
        CountingInTheClass.number += 1
        image, label = super().__getitem__(index)
        return image * (1 + (CountingInTheClass.number > 30)), label


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["module", "closure", "class"])
def test_what_counts_its_calls_is_not_called_besides(kind, workers):
    def build():
        global calls
        calls = CountingInTheClass.number = 0
        transform = counting_in_the_module if kind == "module" else counting_in_a_closure()
        return CountingInTheClass(to_tensor) if kind == "class" else Drawn(transform), {"num_workers": workers}

    said = compared(build)
    assert "changes while it is read" in said or (not workers and "before their random operations" in said)


class Keeping(Drawn):
    """Keeps the samples that it has given, random ones, too."""

    def __init__(self, transform):
        super().__init__(transform)
        self.known = {}

    def __getitem__(self, index):
        if index not in self.known:
            self.known[index] = super().__getitem__(index)
        return self.known[index]


@pytest.mark.parametrize("transform", [to_tensor, T.Compose([T.RandomCrop(20), to_tensor])])
def test_a_data_set_that_keeps_its_samples_goes_on_doing_so(transform):
    assert "changes while it is read" in compared(lambda: (Keeping(transform), {}))


# -- collate functions ----------------------------------------------------------------------------------------------


class Collate:
    def __init__(self):
        self.drawn, self.calls = np.random.default_rng(0), 0

    def holds(self, samples):
        images, labels = default_collate(samples)
        return (images * 2 if self.drawn.random() < 0.1 else images), labels


class Counts:
    calls = 0

    def __call__(self, samples):
        self.calls += 1
        return *default_collate(samples), torch.full((len(samples),), self.calls)


class MakesItsOwn:
    def __call__(self, samples):
        if not hasattr(self, "drawn"):
            self.drawn = np.random.default_rng(0)
        images, labels = default_collate(samples)
        return images * self.drawn.random(), labels


@dataclass
class Padding:
    """As data collators are written: equal ones are equal, and have no hash."""

    length: int

    def __call__(self, samples):
        images, labels = default_collate(samples)
        return torch.nn.functional.pad(images, (0, self.length)), labels


def mixed(samples):
    images, labels = default_collate(samples)
    share, order = np.random.beta(0.4, 0.4), torch.randperm(len(images))
    return share * images + (1 - share) * images[order], labels, labels[order], share


def padded_at_random(samples):
    wide = random.randint(0, 4)
    return torch.stack([torch.nn.functional.pad(image, (0, wide)) for image, _ in samples])


def of_torchvision(kind):
    mix = kind(num_classes=5)
    return lambda samples: mix(*default_collate(samples))


COLLATES = {
    "holds a generator": lambda: Collate().holds,
    "counts": Counts,
    "makes its own generator": MakesItsOwn,
    "mixes": lambda: mixed,
    "pads at random": lambda: padded_at_random,
    "CutMix": lambda: of_torchvision(v2.CutMix),
    "MixUp": lambda: of_torchvision(v2.MixUp),
}


@pytest.mark.parametrize("kind", COLLATES)
@pytest.mark.slow
def test_a_collate_function_is_called_once_a_batch_and_in_order(kind):
    assert "before they are collated" in compared(lambda: (Drawn(to_tensor), {"collate_fn": COLLATES[kind]()}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", COLLATES)
@pytest.mark.few(4)
def test_in_workers_such_a_collate_function_is_left_alone(kind):
    said = compared(lambda: (Drawn(to_tensor), {"collate_fn": COLLATES[kind](), "num_workers": 2}))
    assert "left as it is" in said


def test_a_collate_function_without_a_hash_is_told_from_another():
    assert "samples kept" in compared(lambda: (Drawn(to_tensor), {"collate_fn": Padding(2)}))


scale = {"factor": 1}


def test_a_collate_function_that_changes_between_passes_is_followed():
    def build():
        return Drawn(to_tensor), {"collate_fn": lambda samples: [image * scale["factor"] for image, _ in samples]}

    compared(build, lambda number, _: scale.update(factor=number // 2), passes=5)


# -- files ----------------------------------------------------------------------------------------------------------


class Records(Dataset):
    """Opens its file at the first access, as data sets do that are made for workers."""

    wait_s = 0.0
    file = None

    def __init__(self, path, transform=lambda row: row):
        self.path, self.transform = path, transform

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(index * 16)
        time.sleep(self.wait_s)
        return self.transform(torch.frombuffer(bytearray(self.file.read(16)), dtype=torch.uint8))

    def __deepcopy__(self, memo):
        return type(self)(self.path, self.transform)

    def __del__(self):
        if self.file is not None:
            self.file.close()


class SlowRecords(Records):
    wait_s = 0.002


class Mapped(Records):
    def __getitem__(self, index):
        if self.file is None:
            self.file = np.memmap(self.path, dtype=np.uint8, mode="r", shape=(NUMBER, 16))
        return self.transform(torch.from_numpy(np.array(self.file[index])))

    def __del__(self):
        pass


@pytest.fixture
def path(tmp_path):
    (tmp_path / "records").write_bytes(np.random.RandomState(0).randint(0, 256, NUMBER * 16, dtype=np.uint8).tobytes())
    return tmp_path / "records"


# Copies of a data set leave closing to the interpreter, which says so where it is asked to.
unclosed = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@unclosed
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Records, SlowRecords, Mapped])
def test_a_file_that_is_opened_at_the_first_access_is_no_change(path, kind, workers):
    assert "samples kept" in compared(lambda: (kind(path), {"num_workers": workers}))


@unclosed
def test_a_file_opened_at_the_first_access_and_a_random_transform(path):
    compared(lambda: (Records(path, lambda row: row + torch.randint(9, ())), {}))


class EachItsOwn(Records):
    """Leaves the position in its file to chance: what comes depends on what was asked before."""

    def __init__(self, path, transform=lambda row: row):
        super().__init__(path, transform)
        self.file = open(path, "rb")  # noqa: SIM115

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.file.read(1)), dtype=torch.uint8)


def test_a_file_that_is_open_stays_where_it_is(path):
    assert "holds an open file" in compared(lambda: (EachItsOwn(path), {}), passes=2)


# -- what is written to between passes ------------------------------------------------------------------------------


def known(kind, transform, **content):
    """Return one of torchvision's data sets without a file."""
    made = kind.__new__(kind)
    rest = {"target_transform": None, "transforms": None, "root": "", "train": True}
    vars(made).update(rest, transform=transform, **content)
    return made


def cifar(transform):
    drawn = np.random.RandomState(0)
    data, targets = drawn.randint(0, 256, (NUMBER, 32, 32, 3), dtype=np.uint8), drawn.randint(0, 10, NUMBER).tolist()
    return known(torchvision.datasets.CIFAR10, transform, data=data, targets=targets)


def svhn(transform):
    drawn = np.random.RandomState(0)
    data, labels = drawn.randint(0, 256, (NUMBER, 3, 32, 32), dtype=np.uint8), drawn.randint(0, 10, NUMBER)
    return known(torchvision.datasets.SVHN, transform, data=data, labels=labels)


def fashion(transform):
    drawn = torch.Generator().manual_seed(0)
    data = torch.randint(0, 256, (NUMBER, 28, 28), dtype=torch.uint8, generator=drawn)
    targets = torch.randint(0, 10, (NUMBER,), generator=drawn)
    return known(torchvision.datasets.FashionMNIST, transform, data=data, targets=targets)


def write_target(number, dataset):
    if number:
        dataset.targets[7 * number % NUMBER] = 9


def write_image(number, dataset):
    if number:
        dataset.data[7 * number % NUMBER] = number


def write_label(number, dataset):
    if number:
        dataset.labels[5 * number % NUMBER] = 9


def write_index(number, dataset):
    if number:
        dataset.indices[3] = number


WRITTEN = {
    "a target in a list": (lambda: cifar(to_tensor), write_target),
    "a target in a tensor": (lambda: fashion(to_tensor), write_target),
    "an image in an array": (lambda: cifar(to_tensor), write_image),
    "a label in an array": (Table, write_label),
    "an index of a part": (lambda: Subset(Table(), list(range(20))), write_index),
    "an index of a part of images": (lambda: Subset(cifar(to_tensor), list(range(20))), write_index),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.slow
def test_what_a_script_writes_into_its_data_between_passes_is_seen(kind):
    build, write = WRITTEN[kind]
    assert "changes from pass to pass" in compared(lambda: (build(), {}), write, passes=6)


def replace_at(place, transform):
    def between(number, dataset):
        if number == place:
            dataset.transform = transform

    return between


RANDOM = T.Compose([T.RandomCrop(20), T.RandomHorizontalFlip(), to_tensor])
AT_RANDOM = T.Compose([T.RandAugment(), to_tensor])


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("first", [to_tensor, RANDOM, AT_RANDOM])
@pytest.mark.parametrize("then", [to_tensor, RANDOM, AT_RANDOM])
@pytest.mark.few(3)
@pytest.mark.slow
def test_a_transform_that_is_replaced_between_passes_is_followed(first, then, place):
    compared(lambda: (Drawn(first), {}), replace_at(place, then), passes=4)


# -- sums -----------------------------------------------------------------------------------------------------------


class Summed(Dataset):
    """Sums so many numbers that the last bits tell on how many threads."""

    wait_s = 0.0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        time.sleep(self.wait_s)
        return torch.from_numpy(np.random.RandomState(index).rand(300_000).astype("float32")).sum(), index


class SlowlySummed(Summed):
    wait_s = 0.01


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Summed, SlowlySummed])
@pytest.mark.few(1)
def test_what_a_sample_computes_has_the_bits_of_as_many_threads(two_threads, kind, workers):
    assert "6 samples kept" in compared(lambda: (kind(), {"num_workers": workers, "batch_size": 2}))


@pytest.mark.slow
@pytest.mark.full
def test_a_batch_is_summed_on_as_many_threads(two_threads):
    def summed(samples):
        return torch.stack([value for value, _ in samples]).double().expand(200_000, 2).float().sum()

    for workers in (0, 2):
        compared(lambda: (Summed(), {"num_workers": workers, "batch_size": 2, "collate_fn": summed}))  # noqa: B023


# -- data sets, samplers and transforms of torch and torchvision ----------------------------------------------------


class Buckets(Sampler):
    def __iter__(self):
        order = list(range(NUMBER))
        random.shuffle(order)
        batches = [order[start : start + 4 + start % 3] for start in range(0, NUMBER, 7)]
        random.shuffle(batches)
        yield from batches

    def __len__(self):
        return 6


class AtOnce(Table):
    def __getitems__(self, indices):
        return [(self.rows[index] * 2, self.labels[index]) for index in indices]


class AtOnceAtRandom(Table):
    def __getitems__(self, indices):
        factor = np.random.rand()
        return [(self.rows[index] * factor, self.labels[index]) for index in indices]


class AtOnceTogether(Table):
    def __getitems__(self, indices):
        return [(self.rows[index] * len(indices), self.labels[index]) for index in indices]


class AtOnceCollated(Table):
    def __getitems__(self, indices):
        return torch.from_numpy(self.rows[indices]), torch.from_numpy(self.labels[indices])


def of_epoch():
    sampler = DistributedSampler(cifar(CROP), 3, 1, seed=4)
    return sampler.dataset, {"shuffle": False, "sampler": sampler}


CROP = T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), to_tensor])
SMALL = T.Compose([T.Resize(20), to_tensor])
FAKE = {"size": NUMBER, "image_size": (3, 20, 20), "num_classes": 5}

MET = {
    "CIFAR-10": (lambda: (cifar(CROP), {}), "made in batches"),
    "SVHN": (lambda: (svhn(CROP), {}), "made in batches"),
    "FashionMNIST": (lambda: (fashion(to_tensor), {}), "made in batches"),
    "FakeData": (lambda: (torchvision.datasets.FakeData(**FAKE, transform=to_tensor), {}), "kept"),
    "FakeData, random": (
        lambda: (torchvision.datasets.FakeData(**FAKE, transform=T.Compose([T.RandomCrop(16), to_tensor])), {}),
        "",
    ),
    "parts of parts": (lambda: (Subset(Subset(cifar(CROP), range(0, 40, 2)), [3, 1, 4, 1, 5]), {}), "made in batches"),
    "random_split": (
        lambda: (random_split(cifar(CROP), [0.7, 0.3], torch.Generator().manual_seed(0))[1], {}),
        "made in batches",
    ),
    "several joined": (lambda: (ConcatDataset([cifar(to_tensor), svhn(to_tensor), Drawn(to_tensor, 32)]), {}), "kept"),
    "several joined, random": (lambda: (ConcatDataset([cifar(CROP), svhn(to_tensor), Drawn(CROP, 32)]), {}), ""),
    "stacked": (lambda: (StackDataset(cifar(to_tensor), Table()), {}), "kept"),
    "stacked, by name": (
        lambda: (StackDataset(image=fashion(to_tensor), row=TensorDataset(torch.rand(NUMBER, 3))), {}),
        "kept",
    ),
    "WeightedRandomSampler": (
        lambda: (cifar(CROP), {"shuffle": False, "sampler": WeightedRandomSampler(torch.rand(NUMBER), 50)}),
        "made in batches",
    ),
    "batches of its own": (
        lambda: (cifar(CROP), {"batch_sampler": Buckets(), "batch_size": 1, "shuffle": False}),
        "made in batches",
    ),
    "__getitems__": (lambda: (AtOnce(), {}), "kept"),
    "__getitems__, random": (lambda: (AtOnceAtRandom(), {}), "left as it is"),
    "__getitems__, of the batch": (lambda: (AtOnceTogether(), {}), "left as it is"),
    "__getitems__, collated": (lambda: (AtOnceCollated(), {"collate_fn": lambda batch: batch}), ""),
    "random labels": (lambda: (Labelled(), {}), "before their random operations"),
}


class Labelled(Drawn):
    """A transform that is the same each time, and one of the labels that is not."""

    def __init__(self):
        super().__init__(SMALL)
        self.target_transform = lambda label: label + random.randint(0, 3)

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image, self.target_transform(label)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MET)
@pytest.mark.few(2)
def test_what_is_met_gives_the_same_batches(name, workers):
    build, expected = MET[name]
    said = compared(build, num_workers=workers)
    seeds = name == "FakeData" and torch.cuda.is_initialized()  # the devices, too, which it does not put back
    assert ("CUDA" if seeds else expected) in said or workers


def test_a_sampler_that_is_told_the_epoch_is_followed():
    samplers = []

    def build():
        dataset, options = of_epoch()
        samplers[:] = [options["sampler"]]
        return dataset, options

    assert "made in batches" in compared(build, lambda number, _: samplers[0].set_epoch(number), passes=4)


AUGMENTED = {
    "RandAugment": T.RandAugment(),
    "AutoAugment": T.AutoAugment(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "AugMix": T.AugMix(),
    "v2.RandAugment": v2.RandAugment(),
    "v2.AugMix": v2.AugMix(),
    "v2.RandomPhotometricDistort": v2.RandomPhotometricDistort(p=0.8),
    "RandomPerspective": T.RandomPerspective(),
    "RandomOrder": T.RandomOrder([T.ColorJitter(0.3, 0.3, 0.3, 0.1), T.RandomHorizontalFlip()]),
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", AUGMENTED)
@pytest.mark.few(2)
def test_augmentations_without_a_kernel_are_called_as_they_were(name, workers):
    said = compared(lambda: (Drawn(T.Compose([AUGMENTED[name], to_tensor])), {"num_workers": workers}))
    assert "left as it is" in said if workers else "before their random operations" in said


class Removing(Table):
    """Removes when it ends what it made when it began."""

    def __init__(self, path):
        super().__init__()
        self.path = path.with_name(str(id(self)))
        self.path.write_text("there")

    def __getitem__(self, index):
        return *super().__getitem__(index), self.path.read_text()

    def __del__(self):
        self.path.unlink()


def test_what_a_data_set_removes_when_it_ends_stays_while_it_lives(path):
    assert "40 samples kept" in compared(lambda: (Removing(path), {}))
