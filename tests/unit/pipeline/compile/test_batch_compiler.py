"""Pipelines of torchvision's data sets and of a script's own, whose transforms are done to whole batches."""

import gzip
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from tests.unit.pipeline.programs import Images, Program
from tests.unit.pipeline.test_equality import agree
from torch.utils.data import DataLoader, Dataset, Subset

from flatout.native import native
from flatout.pipeline import compile_loader
from flatout.pipeline.compile.native_steps import NativeSteps
from flatout.units import format_bytes

v1 = torchvision.transforms
v2 = pytest.importorskip("torchvision.transforms.v2")
datasets = torchvision.datasets

NORMALIZED = v1.Compose([v1.ToTensor(), v1.Normalize((0.13,), (0.31,))])
RGB = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def idx(path, array):
    """Write an array in the format of the MNIST files."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + array.tobytes())


@pytest.fixture
def mnist(tmp_path):
    """Make torchvision's MNIST out of files like the real ones."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    draw = np.random.RandomState(0)
    for name in ("train", "t10k"):
        for kind, array in (
            ("images-idx3", draw.randint(0, 256, (50, 28, 28))),
            ("labels-idx1", draw.randint(0, 10, 50)),
        ):
            path = raw / f"{name}-{kind}-ubyte"
            idx(path.with_suffix(".gz"), array.astype(np.uint8))
            path.write_bytes(gzip.decompress(path.with_suffix(".gz").read_bytes()))
    return lambda transform: datasets.MNIST(tmp_path, transform=transform)


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """Make torchvision's CIFAR10 out of files like the real ones."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    draw = np.random.RandomState(0)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"):
        body = {"data": draw.randint(0, 256, (9, 3072)).astype(np.uint8), "labels": draw.randint(0, 10, 9).tolist()}
        (folder / name).write_bytes(pickle.dumps(body))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(number) for number in range(10)]}))
    monkeypatch.setattr(datasets.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda path, md5=None: True)
    return lambda transform: datasets.CIFAR10(tmp_path, transform=transform)


class Pictures(Dataset):
    """Images of the script's own, opened by PIL."""

    def __init__(self, transform, sides=((9, 9),)):
        self.sides, self.transform = sides, transform

    def __len__(self):
        return 30

    def __getitem__(self, index):
        side = self.sides[index % len(self.sides)]
        pixels = np.random.RandomState(index).randint(0, 256, (*side, 3), dtype=np.uint8)
        return {"image": self.transform(Image.fromarray(pixels)), "label": index % 4, "name": f"{index}.png"}


def encode(dataset, **options):
    return agree(Program(dataset, {"batch_size": 7, "shuffle": True, **options})).explain()


@pytest.mark.parametrize("transform", [v1.ToTensor(), NORMALIZED, v1.Compose([v1.Resize(20), v1.Pad(2), NORMALIZED])])
def test_mnist_is_made_from_its_array_from_the_first_batch_on(mnist, transform):
    said = encode(mnist(transform))
    assert said.startswith("made in batches; 50 samples kept")
    assert f"; {3 * 8} batches came" in said


def test_workers_are_not_started_for_what_lies_in_memory(mnist):
    loader = compile_loader(DataLoader(mnist(NORMALIZED), batch_size=5, num_workers=2))
    assert not hasattr(iter(loader), "_workers")


def test_cifar_is_made_from_its_array(cifar):
    transform = v1.Compose([v1.CenterCrop(24), v1.ToTensor(), v1.Normalize(*RGB)])
    assert encode(cifar(transform)).startswith("made in batches; 45 samples")


def test_a_part_of_a_data_set_is_made_from_the_whole_ones_array(mnist):
    assert encode(Subset(mnist(NORMALIZED), range(3, 33))).startswith("made in batches; 30 samples")


@pytest.mark.parametrize(
    "transform",
    [
        v1.Compose([v1.Resize(12), v1.ToTensor(), v1.Normalize(*RGB)]),
        v1.Compose([v1.Grayscale(), v1.Compose([v1.CenterCrop(5), v1.ToTensor()])]),
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*RGB)]),
    ],
)
def test_a_transform_that_a_data_set_holds_is_done_to_whole_batches(transform):
    assert encode(Pictures(transform)).startswith("made in batches; 30 samples")


@pytest.mark.skipif(not native.available(), reason="flatout was installed without a C compiler")
@pytest.mark.parametrize("much", [2**40, 1])  # of numbers made of bytes; then the bytes are kept
def test_in_the_first_pass_images_are_written_where_they_are_kept(monkeypatch, much):
    monkeypatch.setattr("flatout.pipeline.cache.cache_stage._MUCH", much)
    written, write = [], NativeSteps.write
    monkeypatch.setattr(NativeSteps, "write", lambda *given: written.append(write(*given)) or written[-1])
    encode(Pictures(v1.Compose([v1.Resize((20, 16)), v1.ToTensor()])))
    assert written
    assert all(written)


def test_images_of_several_sizes_are_still_the_same():
    transform = v1.Compose([v1.Resize((8, 8)), v1.ToTensor()])
    assert "30 samples kept" in encode(Pictures(transform, sides=((9, 9), (12, 7))))


def test_an_operation_without_a_kernel_is_done_as_the_script_does_it():
    transform = v1.Compose([v1.ToTensor(), v1.Lambda(lambda image: image.sqrt())])
    assert encode(Pictures(transform)).startswith("30 samples kept")


def test_a_random_operation_without_a_kernel_is_done_by_the_script_to_images_that_are_kept():
    transform = v1.Compose([v1.ToTensor(), v1.Lambda(lambda image: image + torch.rand(()))])
    assert "before their random operations" in encode(Pictures(transform))


AUGMENTED = v1.Compose([v1.RandomCrop(28, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(0.1, 0.3)])


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_random_operations_draw_what_the_script_and_its_workers_would_draw(mnist, workers, persistent):
    options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    assert encode(mnist(AUGMENTED), **options).startswith("made in batches; 0 samples kept")


def test_images_of_several_sizes_are_cropped_and_resized_at_random():
    transform = v1.Compose([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip(), v1.ToTensor()])
    said = encode(Pictures(transform, sides=((9, 9), (12, 7), (30, 20))))
    assert said.startswith("made in batches; 30 samples kept")


def test_a_transform_that_is_replaced_between_passes_is_followed():
    dataset = Pictures(v1.ToTensor())
    loader = compile_loader(DataLoader(dataset, batch_size=30))
    (first,) = loader
    dataset.transform = v1.Compose([v1.ToTensor(), v1.Normalize(*RGB)])
    (second,) = loader
    assert torch.equal(second["image"], torch.stack([dataset[index]["image"] for index in range(30)]))
    assert not torch.equal(first["image"], second["image"])


def test_what_does_not_fit_is_kept_at_an_earlier_stage():
    transform = v1.Compose([v1.Resize(20), v1.ToTensor(), v1.Normalize(*RGB)])
    limit = 30 * (20 * 20 * 3 + 8 + 64)
    loaders = [DataLoader(Pictures(transform), batch_size=7) for _ in range(2)]
    ours = compile_loader(loaders[0], max_bytes=limit)
    for _ in range(2):
        for one, other in zip(ours, loaders[1], strict=True):
            assert torch.equal(one["image"], other["image"])
    assert "30 samples kept in" in ours.explain()


@pytest.mark.parametrize(("much", "kept"), [(1000, 20 * 20 * 3), (1024**3, 4 * 20 * 20 * 3)])
def test_of_much_bytes_are_kept_and_not_the_numbers_made_of_them(monkeypatch, much, kept):
    """Fresh memory for four times as much costs the first pass more than later ones gain."""
    monkeypatch.setattr("flatout.pipeline.cache.cache_stage._MUCH", much)
    transform = v1.Compose([v1.Resize((20, 20)), v1.ToTensor(), v1.Normalize(*RGB)])
    loaders = [DataLoader(Pictures(transform), batch_size=7) for _ in range(2)]
    ours = compile_loader(loaders[0])
    for _ in range(2):
        for one, other in zip(ours, loaders[1], strict=True):
            assert torch.equal(one["image"], other["image"])
    assert f"30 samples kept in {format_bytes(30 * (kept + 8 + 64))}" in ours.explain()


def test_a_data_set_too_large_to_keep_is_left_alone_with_its_numbers():
    loader = compile_loader(DataLoader(Images(40, form="array"), batch_size=4), max_bytes=1000)
    assert len(list(loader)) == 10
    assert "40 samples of 300 B take 11.7 KiB, and 1000 B fit into the memory budget" in loader.explain()


class OddOne(Pictures):
    """One image of another size or kind, where no proof looks."""

    odd = "size"

    def __len__(self):
        return 300

    def __getitem__(self, index):
        odd = self.odd if index == 101 else ""
        side = (12, 7) if odd == "size" else (9, 9)
        image = Image.fromarray(np.random.RandomState(index).randint(0, 256, (*side, 3), dtype=np.uint8))
        return self.transform(image.convert("L") if odd == "mode" else image), index


def test_a_sample_that_the_kernels_do_not_suit_is_made_as_the_script_makes_it():
    dataset = OddOne(v1.Compose([v1.Grayscale(), v1.Resize((8, 8)), v1.ToTensor()]))
    dataset.odd = "mode"
    assert encode(dataset).startswith("300 samples kept")


def test_one_sample_of_another_size_changes_nothing():
    assert encode(OddOne(v1.Compose([v1.Resize((8, 8)), v1.ToTensor()]))).startswith("made in batches; 300 samples")
