"""Other libraries' loaders for the pipelines of `input_pipeline.py`.

Each is given the script's own data set where it takes one, and its best setting among
those that were tried on two cores.
"""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from input_workloads import GRAY, RGB, Setting, Workload

__all__ = ["PACKAGES", "PEERS", "package_of"]

PACKAGES = {
    "torchdata": "torchdata==0.11.0",
    "grain": "grain==0.2.18",
    "spdl": "spdl==0.8.0",
    "dali": "nvidia-dali-cuda130==2.4.0",
}
Pass = Callable[..., Iterator[Any]]


def package_of(contender: str) -> str:
    """Return the key in `PACKAGES` of a peer's contender."""
    return contender.replace(",", " ").split()[0]


def _fetch(dataset: Any, indices: Any) -> Any:
    from torch.utils.data import default_collate

    return default_collate([dataset[index] for index in indices])


# -- torchdata nodes --------------------------------------------------------------------------------------------------


def nodes_batches(setting: Setting, workload: Workload, method: str = "thread") -> Pass:
    """A worker makes a whole batch: with a job a sample, queues cost more than the samples."""
    from torch.utils.data import BatchSampler, RandomSampler
    from torchdata.nodes import Loader, ParallelMapper, SamplerWrapper

    dataset = workload.dataset(setting)
    batches = BatchSampler(RandomSampler(range(setting.num_samples)), workload.batch, drop_last=False)
    node = ParallelMapper(
        SamplerWrapper(batches), functools.partial(_fetch, dataset), num_workers=2, method=method, in_order=True
    )
    loader = Loader(node)
    return lambda order=None: iter(loader)


def nodes_processes(setting: Setting, workload: Workload) -> Pass:
    return nodes_batches(setting, workload, "process")


def nodes_samples(setting: Setting, workload: Workload) -> Pass:
    from torch.utils.data import RandomSampler, default_collate
    from torchdata.nodes import Batcher, Loader, Mapper, ParallelMapper, SamplerWrapper

    dataset: Any = workload.dataset(setting)
    source = SamplerWrapper(RandomSampler(range(setting.num_samples)))
    samples = ParallelMapper(source, dataset.__getitem__, num_workers=64, method="thread", in_order=True)
    loader = Loader(Mapper(Batcher(samples, workload.batch, drop_last=False), default_collate))
    return lambda order=None: iter(loader)


# -- spdl -------------------------------------------------------------------------------------------------------------


def spdl_batches(setting: Setting, workload: Workload, num_threads: int = 2) -> Pass:
    import torch
    from spdl.pipeline import PipelineBuilder

    dataset = workload.dataset(setting)

    def one_pass(order: Any = None) -> Iterator[Any]:
        source = [rows.tolist() for rows in torch.randperm(setting.num_samples).split(workload.batch)]
        made = PipelineBuilder().add_source(source)
        made = made.pipe(functools.partial(_fetch, dataset), concurrency=num_threads, output_order="input").add_sink(3)
        with (pipeline := made.build(num_threads=num_threads)).auto_stop():
            yield from pipeline

    return one_pass


def spdl_one(setting: Setting, workload: Workload) -> Pass:
    return spdl_batches(setting, workload, 1)


def spdl_samples(setting: Setting, workload: Workload) -> Pass:
    import torch
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import default_collate

    dataset: Any = workload.dataset(setting)

    def one_pass(order: Any = None) -> Iterator[Any]:
        made = PipelineBuilder().add_source(torch.randperm(setting.num_samples).tolist())
        made = made.pipe(dataset.__getitem__, concurrency=64, output_order="input").aggregate(workload.batch)
        with (pipeline := made.pipe(default_collate).add_sink(3).build(num_threads=64)).auto_stop():
            yield from pipeline

    return one_pass


# -- grain ------------------------------------------------------------------------------------------------------------


class _Arrays:
    """The data set as grain takes it: samples of NumPy arrays."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        import numpy as np

        sample = self.dataset[int(index)]
        return tuple(map(np.asarray, sample)) if isinstance(sample, tuple) else np.asarray(sample)


def _grain(source: Any, workload: Workload, num_threads: int, prefetch: int) -> Pass:
    import grain.python as grain

    def one_pass(order: Any = None) -> Iterator[Any]:
        one_pass.seed += 1
        options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=prefetch)
        samples = grain.MapDataset.source(source).shuffle(seed=one_pass.seed)
        yield from samples.to_iter_dataset(options).batch(workload.batch, drop_remainder=False)

    one_pass.seed = 0
    return one_pass


def grain_samples(setting: Setting, workload: Workload, num_threads: int = 2) -> Pass:
    return _grain(_Arrays(workload.dataset(setting)), workload, num_threads, max(128, 4 * num_threads))


def grain_many(setting: Setting, workload: Workload) -> Pass:
    return grain_samples(setting, workload, 64)


def grain_rewritten(setting: Setting, workload: Workload) -> Pass:
    """The digits' pipeline written again for NumPy."""
    import numpy as np

    class Digits(_Arrays):
        def __getitem__(self, index: Any) -> Any:
            (mean,), (std,) = GRAY
            pixels = self.dataset.pixels[index][None].astype(np.float32)
            return (pixels / np.float32(255) - np.float32(mean)) / np.float32(std), self.dataset.labels[index]

    return _grain(Digits(workload.dataset(setting)), workload, 0, 0)


# -- DALI -------------------------------------------------------------------------------------------------------------


def dali_fused(setting: Setting, workload: Workload) -> Pass:
    """Decode the box only, resize, flip and scale in one operation."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    dataset: Any = workload.dataset(setting)
    files, labels = (list(part) for part in zip(*dataset.samples, strict=True))
    mean, std = ([255 * value for value in values] for values in RGB)
    num_threads = len(os.sched_getaffinity(0))

    @pipeline_def(batch_size=workload.batch, num_threads=num_threads, device_id=None, prefetch_queue_depth=2)
    def pipeline() -> Any:
        data, label = fn.readers.file(files=files, labels=labels, random_shuffle=True, initial_fill=1024, name="files")
        image = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB)
        image = fn.resize(image, resize_x=224, resize_y=224)
        mirror = fn.random.coin_flip(probability=0.5)
        made = fn.crop_mirror_normalize(
            image, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror
        )
        return made, label

    loader = DALIGenericIterator(
        [pipeline()], ["image", "label"], reader_name="files", auto_reset=True, prepare_first_batch=False
    )
    return lambda order=None: (list(batch[0].values()) for batch in loader)


_GENERAL = {
    "torchdata nodes, batches on 2 threads": nodes_batches,
    "torchdata nodes, batches in 2 processes": nodes_processes,
    "spdl, batches on 2 threads": spdl_batches,
    "spdl, batches on 1 thread": spdl_one,
    "grain, 2 threads": grain_samples,
}
PEERS: dict[str, dict[str, Callable[[Setting, Workload], Pass]]] = {
    "mnist": _GENERAL | {"grain, written again for NumPy": grain_rewritten},
    "resize": _GENERAL,
    "bytes": _GENERAL,
    "augment": _GENERAL,
    "table": _GENERAL,
    "python": _GENERAL,
    "waiting": {
        "torchdata nodes, samples on 64 threads": nodes_samples,
        "spdl, samples on 64 threads": spdl_samples,
        "grain, samples on 64 threads": grain_many,
    },
    "jpeg": _GENERAL | {"dali, fused, on the CPU": dali_fused},
}
