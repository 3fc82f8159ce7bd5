"""Trainings on streams without workers, as they are and with the next batches read ahead, in turns.

    python benchmarks/streams.py [--rounds 5] [--batches 120] [--record] [--only WORD]

A generator with Python for each sample, a WebDataset of tar files, a Hugging Face stream of JSON lines, and a stream
whose samples wait for something far away. Each is trained as written, with the best of `num_workers=1` (the same
batches where the stream does not divide itself; samples come in the worker's own random numbers) and with flatout. The
step computes on one thread for about as long as a batch takes. Batches, random streams and weights of the plain
training and of flatout's are compared. The WebDataset and the Hugging Face stream need these packages.
"""

import argparse
import io
import json
import os
import random
import statistics
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from record import record
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.unit.fixes.training import under

from flatout.watch.dataset_state import parts

SHARDS, BATCH, SIDE = 4, 32, 24
WAYS = ("plain", "num_workers=1", "flatout")


def augmented(image: np.ndarray) -> torch.Tensor:
    """Return an image changed pixel by pixel in Python, as many scripts do."""
    gain = random.uniform(0.8, 1.2)
    rows = [[min(max(value * gain, 0.0), 1.0) for value in row] for row in image.tolist()]
    return torch.tensor(rows)


class Generated(IterableDataset):
    """Python for each sample."""

    def __init__(self, samples: int):
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.samples):
            yield augmented(np.full((SIDE, SIDE), number / self.samples))


class Waiting(Generated):
    """Waits for each sample."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.samples):
            time.sleep(0.0005)
            yield torch.full((SIDE, SIDE), number / self.samples) + random.random()


def generated(folder: Path, samples: int) -> Any:
    return Generated(samples)


def waiting(folder: Path, samples: int) -> Any:
    return Waiting(samples)


def tarred(folder: Path, samples: int) -> Any:
    import webdataset

    names = [str(folder / f"{shard}.tar") for shard in range(SHARDS)]
    for name in names:
        if not os.path.exists(name):
            with tarfile.open(name, "w") as file:
                for number in range(samples // SHARDS):
                    data = np.full((SIDE, SIDE), number / samples, np.float32).tobytes()
                    about = tarfile.TarInfo(f"{number:06d}.bin")
                    about.size = len(data)
                    file.addfile(about, io.BytesIO(data))
    return webdataset.WebDataset(names, shardshuffle=False).shuffle(100, seed=3).map(from_tar)


def from_tar(sample: dict[str, bytes]) -> torch.Tensor:
    return augmented(np.frombuffer(sample["bin"], np.float32).reshape(SIDE, SIDE))


def of_json(folder: Path, samples: int) -> Any:
    import datasets

    names = [str(folder / f"{shard}.jsonl") for shard in range(SHARDS)]
    for name in names:
        if not os.path.exists(name):
            rows = [json.dumps({"x": [number / samples] * SIDE}) for number in range(samples // SHARDS)]
            Path(name).write_text("\n".join(rows) + "\n")
    stream = datasets.load_dataset("json", data_files=names, streaming=True, split="train")
    return stream.shuffle(seed=3, buffer_size=100).map(from_json)


def from_json(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": augmented(np.tile(np.array(row["x"], np.float32), (SIDE, 1)))}


STREAMS: dict[str, Callable[[Path, int], Any]] = {
    "a generator with Python for each sample": generated,
    "samples that wait 0.5 ms each": waiting,
    "WebDataset, 4 tar files": tarred,
    "Hugging Face stream, 4 files of JSON lines": of_json,
}


class Training(NamedTuple):
    """What a training took, and what came of it."""

    seconds: float
    results: tuple[int, ...]
    taken: int
    said: str


def train(make: Callable[[Path, int], Any], folder: Path, batches: int, way: str) -> Training:
    """Train two epochs."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    workers = 1 if way == "num_workers=1" else 0
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.LazyLinear(1024), torch.nn.ReLU(), torch.nn.Linear(1024, 9)
    )
    loader = DataLoader(make(folder, batches // 2 * BATCH), BATCH, num_workers=workers)
    model(torch.zeros(1, SIDE * SIDE))
    optimizer, check, began = torch.optim.SGD(model.parameters(), lr=0.1), 0, time.perf_counter()
    with under("loader-workers", workers=1, on=way == "flatout") as process:
        for _ in range(2):
            for batch in loader:
                images = next(part for part in parts(batch) if isinstance(part, torch.Tensor))
                check = zlib.crc32(images.numpy().tobytes(), check)
                for _ in range(4):
                    optimizer.zero_grad()
                    torch.nn.functional.dropout(model(images)).square().mean().backward()
                    optimizer.step()
        seconds = time.perf_counter() - began
        weights = zlib.crc32(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
        states = repr((torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()))
        taken = process.site.hits.get("DataLoader", 0)
        return Training(seconds, (check, weights, zlib.crc32(states.encode())), taken, process.site.stood_back)


def compare(name: str, folder: Path, rounds: int, batches: int, *, keep: bool) -> None:
    """Train in turns, and print a row."""
    ratios: dict[str, list[float]] = {way: [] for way in WAYS[1:]}
    done: dict[str, Training] = {}
    for number in range(rounds):
        for way in WAYS if number % 2 else reversed(WAYS):
            done[way] = train(STREAMS[name], folder, batches, way)
        for way, found in ratios.items():
            found.append(done["plain"].seconds / done[way].seconds)
        if done["plain"].results != done["flatout"].results:
            sys.exit(f"{name}: batches, weights or random streams DIFFER")
    ours = ratios["flatout"]
    print(
        f"{name:44s} plain {done['plain'].seconds:5.2f} s; num_workers=1 {_told(ratios['num_workers=1'])}; "
        f"flatout {_told(ours)}, {done['flatout'].taken} of {batches} batches read ahead"
        f"{': ' + done['flatout'].said if done['flatout'].said else ''}; bits, weights, streams the same",
        flush=True,
    )
    if keep:
        for way, found in ratios.items():
            ends = {"low": min(found), "high": max(found), "n": rounds, "n_of": "rounds", "unit": "x"}
            record("streams", f"{name}: plain over {way}", statistics.median(found), **ends)


def _told(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Print a row for each stream."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="trainings of each stream and way")
    parser.add_argument("--batches", type=int, default=120, help="batches of a training, in two epochs")
    parser.add_argument("--only", default="", help="streams that have this word in their names")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(
        f"torch {torch.__version__}, 1 thread, {options.batches} batches of {BATCH}, {options.rounds} rounds, in turns"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("HF_HOME", folder)
        for name in STREAMS:
            if options.only in name:
                try:
                    compare(name, Path(folder), options.rounds, options.batches, keep=options.record)
                except ImportError as error:
                    print(f"{name:44s} left out: {error}")


if __name__ == "__main__":
    main()
