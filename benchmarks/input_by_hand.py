"""What an expert would write in place of each loader of `input_pipeline.py`: arrays prepared once, batches gathered.

Every function returns the way to one pass: a callable that yields batches in an order of its own drawing. `same_bits`
asks for the first batches in the data set's order, so that they can be compared with the script's own loader.
"""

import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psutil
import torch
from input_workloads import COLUMNS, GRAY, RGB, Setting, Workload, make_loader
from PIL import Image
from torch.nn import functional
from torch.utils.data import default_collate

__all__ = ["BY_HAND", "BY_HAND_ON_DEVICE", "same_bits"]

Order = torch.Tensor | None
Fetch = Callable[[torch.Tensor], Any]
Pass = Callable[..., Iterator[Any]]


def same_bits(one_pass: Pass, workload: Workload, setting: Setting, num_batches: int = 2) -> bool:
    """Return whether the first batches equal those of the plain loader without shuffling, strides and all."""
    order = torch.arange(min(setting.num_samples, num_batches * workload.batch))
    plain = iter(make_loader(workload, setting, 0, shuffle=False))
    return all(_equal(ours, theirs) for ours, theirs in zip(one_pass(order), plain, strict=False))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.stride() == other.stride() and one.dtype == other.dtype and torch.equal(one, other)
    return all(_equal(left, right) for left, right in zip(one, other, strict=True))


def _passes(fetch: Fetch, number: int, batch: int) -> Pass:
    def one_pass(order: Order = None) -> Iterator[Any]:
        for indices in (torch.randperm(number) if order is None else order).split(batch):
            yield fetch(indices)

    return one_pass


def _many(fetch: Fetch, number: int, batch: int) -> Pass:
    """Cut 32 batches from each gather."""

    def one_pass(order: Order = None) -> Iterator[Any]:
        for indices in (torch.randperm(number) if order is None else order).split(32 * batch):
            parts = fetch(indices)
            if isinstance(parts, torch.Tensor):
                yield from parts.split(batch)
            else:
                yield from zip(*(part.split(batch) for part in parts), strict=True)

    return one_pass


def _room_for(num_bytes: int) -> None:
    free = psutil.virtual_memory().available
    if num_bytes > free / 2:
        raise SystemExit(f"takes {num_bytes / 2**30:.1f} GiB of {free / 2**30:.1f} GiB free memory: left out")


def _scaled(pixels: torch.Tensor, colors: tuple[tuple[float, ...], ...]) -> torch.Tensor:
    """Return uint8 of shape (N, C, H, W) as ToTensor and Normalize do: contiguous, with the same bits."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in colors)
    made = torch.empty(pixels.shape)
    return made.copy_(pixels).div_(255).sub_(mean).div_(std)


# -- images in memory -------------------------------------------------------------------------------------------------


def _digits(setting: Setting, workload: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    dataset: Any = workload.dataset(setting)
    return torch.from_numpy(dataset.pixels).unsqueeze(1), torch.tensor(dataset.labels)


def digits_gather(setting: Setting, workload: Workload, cut: Callable[..., Pass] = _passes) -> Pass:
    pixels, labels = _digits(setting, workload)
    images = _scaled(pixels, GRAY)
    return cut(lambda rows: [images.index_select(0, rows), labels.index_select(0, rows)], len(labels), workload.batch)


def digits_many(setting: Setting, workload: Workload) -> Pass:
    return digits_gather(setting, workload, _many)


def digits_scale(setting: Setting, workload: Workload) -> Pass:
    pixels, labels = _digits(setting, workload)
    return _passes(
        lambda rows: [_scaled(pixels.index_select(0, rows), GRAY), labels.index_select(0, rows)],
        len(labels), workload.batch,
    )  # fmt: skip


def _enlarge(pixels: torch.Tensor) -> torch.Tensor:
    """Resize uint8 of shape (N, H, W, C) to (N, C, 224, 224) as Pillow does, to the bit, on the faster layout."""
    planes = pixels.permute(0, 3, 1, 2)
    return functional.interpolate(planes, (224, 224), mode="bilinear", antialias=True)


def _colored(setting: Setting, workload: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    dataset: Any = workload.dataset(setting)
    return torch.from_numpy(dataset.pixels), torch.tensor(dataset.labels)


def resize_batches(setting: Setting, workload: Workload) -> Pass:
    pixels, labels = _colored(setting, workload)
    return _passes(
        lambda rows: [_scaled(_enlarge(pixels.index_select(0, rows)), RGB), labels.index_select(0, rows)],
        len(labels), workload.batch,
    )  # fmt: skip


def _stored(pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    _room_for(len(pixels) * 3 * 224 * 224 * dtype.itemsize)
    store = torch.empty(len(pixels), 3, 224, 224, dtype=dtype)
    for place in range(0, len(pixels), 64):
        made = _enlarge(pixels[place : place + 64])
        store[place : place + 64] = _scaled(made, RGB) if dtype.is_floating_point else made
    return store


def resize_gather(setting: Setting, workload: Workload, dtype: torch.dtype = torch.float32) -> Pass:
    pixels, labels = _colored(setting, workload)
    images = _stored(pixels, dtype)
    return _passes(
        lambda rows: [images.index_select(0, rows), labels.index_select(0, rows)], len(labels), workload.batch
    )


def bytes_gather(setting: Setting, workload: Workload) -> Pass:
    return resize_gather(setting, workload, torch.uint8)


def bytes_batches(setting: Setting, workload: Workload) -> Pass:
    pixels, labels = _colored(setting, workload)
    return _passes(
        lambda rows: [_enlarge(pixels.index_select(0, rows)).contiguous(), labels.index_select(0, rows)],
        len(labels), workload.batch,
    )  # fmt: skip


def resize_on_device(setting: Setting, workload: Workload) -> Pass:
    """Keep the resized bytes on the device; gather and scale them there."""
    pixels, labels = _colored(setting, workload)
    images, labels = _stored(pixels, torch.uint8).cuda(), labels.cuda()
    mean, std = (torch.tensor(values, device="cuda").view(-1, 1, 1) for values in RGB)

    def fetch(rows: torch.Tensor) -> list[torch.Tensor]:
        rows = rows.cuda()
        return [images.index_select(0, rows).float().div_(255).sub_(mean).div_(std), labels.index_select(0, rows)]

    return _passes(fetch, len(labels), workload.batch)


def resize_scale(setting: Setting, workload: Workload) -> Pass:
    pixels, labels = _colored(setting, workload)
    images = _stored(pixels, torch.uint8)
    return _passes(
        lambda rows: [_scaled(images.index_select(0, rows), RGB), labels.index_select(0, rows)],
        len(labels), workload.batch,
    )  # fmt: skip


# -- images that change each time -------------------------------------------------------------------------------------


def augment_batches(setting: Setting, workload: Workload) -> Pass:
    """Gather what Resize made; crop and flip each image, jitter the colours of the batch with factors per image."""
    pixels, labels = _colored(setting, workload)
    images = _stored(pixels, torch.uint8)

    def fetch(rows: torch.Tensor) -> list[torch.Tensor]:
        padded = functional.pad(images.index_select(0, rows), (16, 16, 16, 16))
        made = torch.empty(len(rows), 3, 224, 224)
        for place, (top, left, flip) in enumerate(torch.randint(0, 33, (len(rows), 3)).tolist()):
            cut = padded[place, :, top : top + 224, left : left + 224]
            made[place].copy_(cut.flip(-1) if flip % 2 else cut)
        _jitter(made)
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in RGB)
        return [made.div_(255).sub_(mean).div_(std), labels.index_select(0, rows)]

    return _passes(fetch, len(labels), workload.batch)


def _jitter(images: torch.Tensor) -> None:
    factors = torch.empty(3, len(images), 1, 1, 1).uniform_(0.8, 1.2)
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    for kind in random.sample(range(3), 3):
        factor = factors[kind]
        if kind == 0:
            images.mul_(factor)
        else:
            gray = (images * weights).sum(1, keepdim=True)
            other = gray.mean((2, 3), keepdim=True) if kind == 1 else gray
            images.mul_(factor).add_(other * (1 - factor))
        images.clamp_(0, 255)


def photos_decoded(setting: Setting, workload: Workload) -> Pass:
    """Keep decoded pixels; cut, resize, flip and scale each image on one thread per core."""
    dataset: Any = workload.dataset(setting)
    sizes = torchvision_box(dataset)
    _room_for(len(dataset) * 3 * 500 * 375)
    torch.set_num_threads(1)
    threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    store = list(threads.map(_decoded, [path for path, _ in dataset.samples]))
    labels = torch.tensor(dataset.targets[: len(dataset)])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in RGB)

    def one(row: int, slot: torch.Tensor) -> None:
        pixels = store[row].permute(2, 0, 1)
        top, left, height, width = sizes(pixels)
        cut = pixels[None, :, top : top + height, left : left + width]
        made = functional.interpolate(cut, (224, 224), mode="bilinear", antialias=True)[0]
        slot.copy_(made.flip(-1) if random.random() < 0.5 else made).div_(255).sub_(mean).div_(std)

    def start(rows: torch.Tensor) -> tuple[list[Future[None]], Any]:
        made = torch.empty(len(rows), 3, 224, 224)
        jobs = [threads.submit(one, row, made[place]) for place, row in enumerate(rows.tolist())]
        return jobs, [made, labels.index_select(0, rows)]

    return _ahead(start, len(dataset), workload.batch, num_ahead=2)


def torchvision_box(dataset: Any) -> Callable[[torch.Tensor], tuple[int, int, int, int]]:
    """Return what draws the boxes of the data set's RandomResizedCrop."""
    crop = dataset.transform.transforms[0]
    return lambda pixels: crop.get_params(pixels, crop.scale, crop.ratio)


def _decoded(path: str) -> torch.Tensor:
    import numpy as np

    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB")))


# -- the rest ---------------------------------------------------------------------------------------------------------


def table_gather(setting: Setting, workload: Workload, cut: Callable[..., Pass] = _passes) -> Pass:
    dataset: Any = workload.dataset(setting)
    rows = torch.from_numpy(dataset.rows[:, COLUMNS])
    return cut(lambda wanted: rows.index_select(0, wanted), len(rows), workload.batch)


def table_many(setting: Setting, workload: Workload) -> Pass:
    return table_gather(setting, workload, _many)


def computed_gather(setting: Setting, workload: Workload) -> Pass:
    store = torch.cat(list(make_loader(workload, setting, 2, shuffle=False)))
    return _passes(lambda rows: store.index_select(0, rows), len(store), workload.batch)


def waiting_threads(num_threads: int) -> Callable[[Setting, Workload], Pass]:
    def prepare(setting: Setting, workload: Workload) -> Pass:
        dataset: Any = workload.dataset(setting)
        threads = ThreadPoolExecutor(num_threads)

        def start(rows: torch.Tensor) -> tuple[list[Future[Any]], Any]:
            return [threads.submit(dataset.__getitem__, row) for row in rows.tolist()], None

        return _ahead(start, setting.num_samples, workload.batch, num_ahead=2 + num_threads // workload.batch)

    return prepare


def _ahead(start: Callable[[torch.Tensor], Any], number: int, batch: int, num_ahead: int) -> Pass:
    """Keep `num_ahead` batches under way; those of the next pass are begun before this one ends."""
    running: deque[Any] = deque()

    def orders() -> Iterator[torch.Tensor]:
        while True:
            yield from torch.randperm(number).split(batch)

    upcoming = orders()

    def one_pass(order: Order = None) -> Iterator[Any]:
        source = upcoming if order is None else iter(order.split(batch))
        queue = running if order is None else deque[Any]()
        for _ in range(-(-(number if order is None else len(order)) // batch)):
            while len(queue) < num_ahead and (rows := next(source, None)) is not None:
                queue.append(start(rows))
            jobs, made = queue.popleft()
            done = [job.result() for job in jobs]
            yield default_collate(done) if made is None else made

    return one_pass


BY_HAND_ON_DEVICE = {"resize": {"bytes there, scaled": resize_on_device}}
BY_HAND: dict[str, dict[str, Callable[[Setting, Workload], Pass]]] = {
    "mnist": {"prepared": digits_gather, "prepared, 32 at once": digits_many, "uint8, scaled": digits_scale},
    "resize": {"prepared": resize_gather, "uint8, scaled": resize_scale, "resized in batches": resize_batches},
    "bytes": {"prepared": bytes_gather, "resized in batches": bytes_batches},
    "augment": {"uint8, augmented in batches": augment_batches},
    "table": {"prepared": table_gather, "prepared, 32 at once": table_many},
    "python": {"prepared": computed_gather},
    "waiting": {"64 threads": waiting_threads(64), "256 threads": waiting_threads(256)},
    "jpeg": {"decoded, threads": photos_decoded},
}
