"""The input pipelines that `input_pipeline.py` times, written as people write them: data sets, transforms, goals."""

import functools
import runpy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

__all__ = [
    "COLUMNS",
    "GRAY",
    "RGB",
    "WORKLOADS",
    "Goal",
    "Setting",
    "Workload",
    "loops_per_ms",
    "make_loader",
    "torchvision",
    "write_photos",
]

STUB = Path(__file__).resolve().parent.parent / "tests" / "torchvision_stub.py"
GRAY = ((0.1307,), (0.3081,))
RGB = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NOISE = "1.0, less the noise of such a run"
COLUMNS = np.array([0, 5, 10, 15, 20, 25, 30, 35])


@dataclass(frozen=True)
class Setting:
    """What all contenders of one run are given: number of samples, loops that take 1 ms, where the JPEG files lie."""

    num_samples: int
    loops_per_ms: int
    photos: str


@dataclass(frozen=True)
class Goal:
    """A figure to reach: `measure` ("first" or "later" passes of the compiled loader) over `against`.

    `against`: "nothing" (samples/s), "plain" (the best plain loader, steady), "plain first" (its first pass) or "hand".
    `of`: "compiled", or "on a device": the same with batches on a CUDA device, against what is by hand there.
    """

    at_least: float
    measure: str = "later"
    against: str = "nothing"
    note: str = ""
    of: str = "compiled"


@dataclass(frozen=True)
class Workload:
    """One pipeline: its data set, its loader's settings, and what is expected of the compiled one."""

    title: str
    dataset: Callable[[Setting], Dataset[Any]]
    num_samples: int
    batch: int
    goals: tuple[Goal, ...]
    plain: tuple[int, ...] = (0, 1, 2, 4)
    compiled: tuple[int, ...] = (0,)
    random: bool = False
    pause_ms: float | None = None


@functools.cache  # the stub's operations live as long as its names do
def torchvision() -> Any:
    """Return torchvision, its compiled operations stubbed where they do not load, as with a CPU build of torch."""
    try:
        return runpy.run_path(str(STUB))["torchvision"]
    except ImportError as error:
        raise SystemExit(f"torchvision is missing ({error}): pip install torchvision") from None


class Pictures(Dataset[Any]):
    """Arrays in memory, opened by PIL for the transform, with a label."""

    def __init__(self, num_samples: int, shape: tuple[int, ...], transform: Any) -> None:
        self.pixels = np.random.RandomState(0).randint(0, 256, (num_samples, *shape), dtype=np.uint8)
        self.labels = np.random.RandomState(1).randint(0, 10, num_samples).tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


class Table(Dataset[Any]):
    """Rows of 40 columns in memory, 8 of which are asked for."""

    def __init__(self, num_samples: int) -> None:
        self.rows = np.random.RandomState(0).rand(num_samples, 40).astype(np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index][COLUMNS]


class Computed(Dataset[Any]):
    """Samples of 10 KB that take 1 ms of Python each, the same each time."""

    def __init__(self, num_samples: int, loops: int) -> None:
        self.num_samples, self.loops = num_samples, loops

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        return np.full(2560, churn(self.loops, index), dtype=np.float32)


class Remote(Dataset[Any]):
    """Samples that take 5 ms to arrive."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        return torch.full((256,), float(index))


def churn(loops: int, value: int) -> int:
    """Keep one core busy with Python."""
    for _ in range(loops):
        value = (value * 1103515245 + 12345) % 2147483648
    return value


def loops_per_ms() -> int:
    """Return how often `churn` goes round in 1 ms on this machine."""
    took = []
    for _ in range(9):
        start = time.perf_counter()
        churn(20_000, 1)
        took.append(time.perf_counter() - start)
    return round(20_000 * 0.001 / min(took))


def write_photos(folder: Path, number: int) -> None:
    """Write JPEG files of 500x375 and about 110 KB, blurred noise under fine noise, in the folders of ten classes."""
    draw = np.random.RandomState(0)
    for index in range(number):
        place = folder / f"class{index % 10}" / f"{index:05d}.jpg"
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(draw.randint(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375))
        fine = np.asarray(coarse, dtype=np.int16) + draw.randint(-19, 20, (375, 500, 1), dtype=np.int16)
        Image.fromarray(fine.clip(0, 255).astype(np.uint8)).save(place, quality=93)


def digits(setting: Setting) -> Dataset[Any]:
    steps = torchvision().transforms
    return Pictures(setting.num_samples, (28, 28), steps.Compose([steps.ToTensor(), steps.Normalize(*GRAY)]))


def enlarged(setting: Setting) -> Dataset[Any]:
    steps = torchvision().transforms
    chain = [steps.Resize(224), steps.ToTensor(), steps.Normalize(*RGB)]
    return Pictures(setting.num_samples, (32, 32, 3), steps.Compose(chain))


def enlarged_bytes(setting: Setting) -> Dataset[Any]:
    steps = torchvision().transforms
    return Pictures(setting.num_samples, (32, 32, 3), steps.Compose([steps.Resize(224), steps.PILToTensor()]))


def augmented(setting: Setting) -> Dataset[Any]:
    steps = torchvision().transforms
    changes = [steps.RandomCrop(224, padding=16), steps.RandomHorizontalFlip(), steps.ColorJitter(0.2, 0.2, 0.2)]
    chain = [steps.Resize(224), *changes, steps.ToTensor(), steps.Normalize(*RGB)]
    return Pictures(setting.num_samples, (32, 32, 3), steps.Compose(chain))


def photos(setting: Setting) -> Dataset[Any]:
    steps = torchvision().transforms
    chain = [steps.RandomResizedCrop(224), steps.RandomHorizontalFlip(), steps.ToTensor(), steps.Normalize(*RGB)]
    dataset = torchvision().datasets.ImageFolder(setting.photos, steps.Compose(chain))
    dataset.samples = dataset.imgs = dataset.samples[: setting.num_samples]
    return dataset


NEVER_WORSE = (Goal(0.95, "later", "plain", NOISE), Goal(0.95, "first", "plain first", NOISE))
WORKLOADS = {
    "mnist": Workload(
        "60,000 28x28 in memory, PIL, ToTensor, Normalize, batch 64, shuffled",
        digits, 60_000, 64, (Goal(1.2e6), Goal(0.9, "later", "hand"), *NEVER_WORSE),
    ),
    "resize": Workload(
        "10,000 32x32x3, PIL, Resize(224), ToTensor, Normalize, batch 32, shuffled",
        enlarged, 10_000, 32,
        (
            Goal(15e3, "first"), Goal(0.9, "later", "hand"), *NEVER_WORSE,
            Goal(150e3, note="bytes kept or sent, scaled there", of="on a device"),
            Goal(0.9, "later", "hand", of="on a device"),
        ),
    ),
    "bytes": Workload(
        "as resize, with PILToTensor in place of ToTensor and Normalize: bytes, to be scaled after their copy",
        enlarged_bytes, 10_000, 32,
        (Goal(150e3), Goal(0.9, "later", "hand"), *NEVER_WORSE),
    ),
    "augment": Workload(
        "as resize, with RandomCrop(224, padding=16), flip and ColorJitter(0.2, 0.2, 0.2) before ToTensor",
        augmented, 10_000, 32, (Goal(5.0, "later", "plain"), *NEVER_WORSE), compiled=(0, 2), random=True,
    ),
    "table": Workload(
        "200,000 rows in memory, 8 of 40 columns, NumPy rows, batch 1024, shuffled",
        lambda setting: Table(setting.num_samples), 200_000, 1024, (Goal(15e6), *NEVER_WORSE),
    ),
    "python": Workload(
        "4,096 samples of 1 ms of Python each, 10 KB out, batch 64, shuffled",
        lambda setting: Computed(setting.num_samples, setting.loops_per_ms), 4_096, 64,
        (Goal(100.0, "later", "plain"), *NEVER_WORSE), compiled=(0, 2),
    ),
    "waiting": Workload(
        "4,096 samples of 5 ms of waiting each, batch 64, shuffled",
        lambda setting: Remote(setting.num_samples), 4_096, 64,
        (Goal(12.2e3, "first"), Goal(20e3, "first", note="with 256 in flight"), *NEVER_WORSE),
        plain=(0, 1, 2, 4, 16), compiled=(16,), pause_ms=20.0,
    ),
    "jpeg": Workload(
        "2,000 JPEG of about 110 KB, RandomResizedCrop(224), flip, ToTensor, Normalize, batch 64, shuffled",
        photos, 2_000, 64, (Goal(7e3), *NEVER_WORSE), compiled=(0, 2), random=True,
    ),
}  # fmt: skip


def make_loader(workload: Workload, setting: Setting, num_workers: int, shuffle: bool = True) -> DataLoader[Any]:
    """Return the script's loader; workers stay between passes, which is their best setting."""
    return DataLoader(
        workload.dataset(setting), workload.batch, shuffle=shuffle,
        num_workers=num_workers, persistent_workers=num_workers > 0,
    )  # fmt: skip
