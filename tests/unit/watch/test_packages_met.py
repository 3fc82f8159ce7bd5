"""Data sets and transforms of packages that flatout does not need: compiled they give what they gave."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.compared import compared
from torch.utils.data import Dataset, Subset

T = torchvision.transforms
NUMBER = 40

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # said where there is one core
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # within the packages
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def pixels(index):
    return np.random.RandomState(index).randint(0, 256, (24, 26, 3), dtype=np.uint8)


# -- Hugging Face datasets ------------------------------------------------------------------------------------------

STEADY = T.Compose([T.Resize(16), T.ToTensor()])
AT_RANDOM = T.Compose([T.RandomCrop(16), T.RandomHorizontalFlip(), T.ToTensor()])


@pytest.fixture
def hf():
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.disable_caching()
    return datasets


def tokens(hf, length=None):
    drawn = np.random.RandomState(0)
    rows = [drawn.randint(1, 99, length or 1 + index % 9).tolist() for index in range(NUMBER)]
    return hf.Dataset.from_dict({"input_ids": rows, "label": [index % 3 for index in range(NUMBER)]})


def images(hf):
    content = {"image": [Image.fromarray(pixels(index)) for index in range(NUMBER)], "label": list(range(NUMBER))}
    return hf.Dataset.from_dict(content, features=hf.Features({"image": hf.Image(), "label": hf.Value("int64")}))


def transformed(transform, factor=1):
    def of_batch(batch):
        return {"pixels": [transform(one.convert("RGB")) * factor for one in batch["image"]], "label": batch["label"]}

    return of_batch


def scaled_at_random(batch):
    factors = np.random.uniform(0.5, 1, len(batch["image"]))  # for the whole batch, before its first image
    draw = random.random()
    return {"pixels": [np.asarray(one) * factor * draw for one, factor in zip(batch["image"], factors, strict=True)]}


def padded(samples):
    longest = max(len(sample["input_ids"]) for sample in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, sample in zip(ids, samples, strict=True):
        row[: len(sample["input_ids"])] = torch.as_tensor(sample["input_ids"])
    return {"input_ids": ids, "labels": torch.tensor([int(sample["label"]) for sample in samples])}


class Masking:
    """As DataCollatorForLanguageModeling does."""

    def __call__(self, samples):
        batch = padded(samples)
        masked = torch.bernoulli(torch.full(batch["input_ids"].shape, 0.15)).bool()
        return batch | {"labels": batch["input_ids"].masked_fill(~masked, -100)}


def stacked(samples):
    return torch.stack([AT_RANDOM(sample["image"]) for sample in samples])


ROWS = "; "  # "... batches came from there"
SAMPLES = "before they are collated"
BEFORE = "before their random operations"
HF = {
    "torch": (lambda hf: (tokens(hf, 6).with_format("torch"), {}), ROWS),
    "torch, a column": (lambda hf: (tokens(hf, 6).with_format("torch", columns=["input_ids"]), {}), ROWS),
    "numpy": (lambda hf: (tokens(hf, 6).with_format("numpy"), {}), ROWS),
    "no format": (lambda hf: (tokens(hf, 6), {}), ROWS),
    "mapped": (
        lambda hf: (
            tokens(hf, 6).map(lambda row: {"n": [2 * one for one in row["input_ids"]]}).with_format("torch"),
            {},
        ),
        ROWS,
    ),
    "shuffled": (lambda hf: (tokens(hf, 6).shuffle(seed=3).select(range(20)).with_format("torch"), {}), ROWS),
    "a part": (lambda hf: (Subset(tokens(hf, 6).with_format("torch"), range(0, NUMBER, 2)), {}), ROWS),
    "padded": (lambda hf: (tokens(hf), {"collate_fn": padded}), SAMPLES),
    "padded, torch": (lambda hf: (tokens(hf).with_format("torch"), {"collate_fn": padded}), SAMPLES),
    "masked": (lambda hf: (tokens(hf), {"collate_fn": Masking()}), SAMPLES),
    "images, torch": (lambda hf: (images(hf).with_format("torch"), {}), ROWS),
    "images, in collate": (lambda hf: (images(hf), {"collate_fn": stacked}), SAMPLES),
    "transform": (lambda hf: (images(hf).with_transform(transformed(STEADY)), {}), ROWS),
    "random transform": (lambda hf: (images(hf).with_transform(transformed(AT_RANDOM)), {}), BEFORE),
    "random transform of the batch": (lambda hf: (images(hf).with_transform(scaled_at_random), {}), BEFORE),
    "random transform, a part": (
        lambda hf: (Subset(images(hf).with_transform(transformed(AT_RANDOM)), range(0, NUMBER, 2)), {}),
        BEFORE,
    ),
    "iterable": (
        lambda hf: (tokens(hf, 6).to_iterable_dataset().with_format("torch"), {"shuffle": False}),
        "a stream, read ahead by another process",
    ),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", HF)
def test_hugging_face_data_sets_give_the_same_batches(hf, name, workers):
    build, expected = HF[name]
    if workers and name == "iterable":
        pytest.skip("each worker would give it all")
    said = compared(lambda: build(hf), num_workers=workers)
    assert expected in said if not workers or expected == ROWS else "left as it is" in said


CHANGES = {
    "another transform": lambda number, data: data.set_transform(transformed(STEADY, 1 + max(0, number - 1))),
    "a random one": lambda number, data: data.set_transform(transformed(AT_RANDOM if number > 1 else STEADY)),
    "random no more": lambda number, data: data.set_transform(transformed(STEADY if number > 1 else AT_RANDOM)),
    "another format": lambda number, data: data.set_format("numpy" if number > 1 else "torch", columns=["label"]),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_hugging_face_data_set_is_told_between_passes_is_followed(hf, name, workers):
    compared(lambda: (images(hf), {}), CHANGES[name], passes=5, num_workers=workers)


# -- albumentations -------------------------------------------------------------------------------------------------


class Augmented(Dataset):
    def __init__(self, transform, mask=False):
        self.transform, self.mask = transform, mask

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        image = pixels(index)
        if self.mask:
            made = self.transform(image=image, mask=(image[..., 0] > 99).astype("uint8"))
            return made["image"], made["mask"]
        return self.transform(image=image)["image"], index % 3


@pytest.fixture
def albumentations(monkeypatch):
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")
    return pytest.importorskip("albumentations")


def chain(albumentations, name):
    to_tensor = pytest.importorskip("albumentations.pytorch").ToTensorV2()
    known = {
        "none": [],
        "flip": [albumentations.HorizontalFlip(p=0.5)],
        "seldom": [albumentations.HorizontalFlip(p=0.02)],
        "crop": [albumentations.RandomCrop(16, 16)],
        "jitter": [albumentations.ColorJitter(p=0.3)],
    }
    end = [albumentations.Resize(16, 16), albumentations.Normalize(), to_tensor]
    return albumentations.Compose(known[name] + end, seed=7)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", ["none", "flip", "seldom", "crop", "jitter"])
def test_albumentations_draws_from_its_own_generators_as_it_did(albumentations, name, mask, workers):
    said = compared(lambda: (Augmented(chain(albumentations, name), mask), {"num_workers": workers}))
    assert "left as it is" in said if workers else BEFORE in said


def test_albumentations_in_a_closure_draws_as_it_did(albumentations):
    def build():
        made = chain(albumentations, "seldom")
        return Augmented(lambda image: made(image=image)), {}

    assert BEFORE in compared(build)


# -- OpenCV ---------------------------------------------------------------------------------------------------------


def test_images_that_opencv_resizes_are_kept():
    cv2 = pytest.importorskip("cv2")

    def resized(image):
        return {"image": torch.from_numpy(cv2.resize(image, (9, 9))).permute(2, 0, 1)}

    assert ROWS in compared(lambda: (Augmented(resized), {}))


def test_the_random_stream_of_opencv_is_left_alone():
    cv2 = pytest.importorskip("cv2")

    def noisy(image):
        noise = np.zeros_like(image)
        cv2.randu(noise, 0, 20)
        return {"image": image + noise}

    def build():
        cv2.setRNGSeed(3)
        return Augmented(noisy), {}

    assert "OpenCV" in compared(build)


# -- HDF5 -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = np.random.RandomState(0).rand(NUMBER, 6, 6).astype("float32")
    return tmp_path / "rows.h5"


class Rows(Dataset):
    """Opens its file at the first access."""

    def __init__(self, path, transform=lambda row: row):
        self.path, self.transform, self.file = path, transform, None

    def __len__(self):
        return NUMBER

    def __getitem__(self, index):
        import h5py

        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.transform(torch.from_numpy(self.file["x"][index])), index


class WithoutAPlace(Rows):
    def __getitem__(self, index):
        import h5py

        if not hasattr(self, "rows"):
            self.rows = h5py.File(self.path, "r")["x"]
        return self.rows[index]


class Closing(Rows):
    def __del__(self):
        if self.file is not None:
            self.file.close()


class OpenedAtOnce(Rows):
    def __init__(self, path):
        import h5py

        super().__init__(path)
        self.file = h5py.File(path, "r")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Rows, WithoutAPlace, Closing])
def test_a_file_of_hdf5_that_is_opened_at_the_first_access_is_no_change(path, kind, workers):
    assert ROWS in compared(lambda: (kind(path), {"num_workers": workers}))


def test_a_file_of_hdf5_and_a_random_transform(path):
    compared(lambda: (Rows(path, lambda row: row + torch.rand(())), {}))


def test_a_file_of_hdf5_that_is_opened_at_once_is_left_alone(path):
    assert "holds an object of h5py" in compared(lambda: (OpenedAtOnce(path), {}))
