"""Rows per second from a Parquet file: `flatout.table` and the ways that people take, in turns, each in a process.

    python benchmarks/tables.py [--rows 1000000] [--seconds 3] [--rounds 3] [--peers] [--record] [--only WORD]

8 of 40 columns (6 of numbers, 2 of lists of 16 floats), batches of 1024, shuffled over the whole file, taken and
dropped. The first pass is timed from before the file is opened (it lies in the page cache), with all that is needed to
open it. Later passes are counted for so many seconds of wall clock. `images`: 20,000 values of 10 KB of bytes and a
label, batches of 64. `larger`: the same table in a control group that has half the memory that the table takes, its
pages let go before; needs root and control groups. `--peers` installs polars, pandas and datasets into the working
folder first, where they are missing. What other processes use of the cores meanwhile is shown: ratios of one run count,
figures of a busy machine do not; so rows per second of the process's own processor time stand beside them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from record import record

COLUMNS = ["c0", "c1", "c2", "c3", "c4", "c5", "l0", "l1"]
BATCH, LIST = 1024, 16
IMAGES, IMAGE_BYTES, IMAGE_BATCH = 20_000, 10_000, 64
PEERS = ["polars", "pandas", "datasets"]
GOALS = {  # rows/s of later passes, and of the first one
    "flatout.table, compiled": (15e6, 3.5e6),
    "flatout.table, larger than the memory": (5e6, None),
}
GROUP = Path("/sys/fs/cgroup/memory")

Batches = Callable[[], Iterator[int]]  # numbers of rows


def write(path: Path, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, 100_000):
        number = min(100_000, rows - start)
        values: dict[str, Any] = {
            f"c{at}": rng.random(number, dtype=np.float32) if at % 2 else rng.integers(0, 1000, number)
            for at in range(38)
        }
        for at in range(2):
            flat = pa.array(rng.random(number * LIST, dtype=np.float32))
            values[f"l{at}"] = pa.FixedSizeListArray.from_arrays(flat, LIST).cast(pa.list_(pa.float32()))
        table = pa.table(values)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def write_images(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [os.urandom(IMAGE_BYTES) for _ in range(IMAGES)]
    table = pa.table({"image": pa.array(images, pa.binary()), "label": pa.array([at % 10 for at in range(IMAGES)])})
    pq.write_table(table, path, row_group_size=1000, compression="none")


# -- contenders -------------------------------------------------------------------------------------------------------


def loader_of(dataset: Any, workers: int = 0, batch: int = BATCH) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def walked(loader: Any, count: Callable[[Any], int]) -> Batches:
    return lambda: (count(batch) for batch in loader)


def of_table(path: Path, *, compiled: bool, workers: int = 0, **more: Any) -> Batches:
    import flatout

    loader = loader_of(flatout.table(path, COLUMNS, **more), workers)
    return walked(flatout.compile_loader(loader) if compiled else loader, lambda batch: len(batch["c0"]))


def mapped(path: Path) -> Batches:
    return of_table(path, compiled=True, max_bytes=0, folder=path.with_suffix(".cache"))


def larger(path: Path) -> Batches:
    return of_table(path, compiled=True, folder=path.with_suffix(".cache"))


def arrays(path: Path) -> dict[str, Any]:
    import numpy as np
    import pyarrow.parquet as pq
    import torch

    table = pq.read_table(path, columns=COLUMNS)
    flat = {name: table.column(name).combine_chunks() for name in COLUMNS}
    made = {}
    for name, column in flat.items():
        values = np.array(column.flatten() if name[0] == "l" else column)
        made[name] = torch.from_numpy(values.reshape(len(table), -1) if name[0] == "l" else values)
    return made


def tensors(path: Path, *, compiled: bool) -> Batches:
    from torch.utils.data import TensorDataset

    import flatout

    loader = loader_of(TensorDataset(*arrays(path).values()))
    return walked(flatout.compile_loader(loader) if compiled else loader, lambda batch: len(batch[0]))


def by_hand(path: Path) -> Batches:
    """Gather each column of tensors that lie in memory, without any loader."""
    import torch

    columns = [*arrays(path).values()]

    def one_pass() -> Iterator[int]:
        for places in torch.randperm(len(columns[0])).split(BATCH):
            made = [torch.index_select(column, 0, places) for column in columns]
            yield len(made[0])

    return one_pass


class RowLoop:
    """As it is often written: a row of the table for each sample."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self.table = pq.read_table(path, columns=COLUMNS).combine_chunks()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        return {name: torch.tensor(self.table.column(name)[index].as_py()) for name in COLUMNS}


class PandasRows:
    """The same by pandas."""

    def __init__(self, path: Path) -> None:
        import pandas

        self.frame = pandas.read_parquet(path, columns=COLUMNS)

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self.frame.iloc[index])


def rows_of(kind: type, path: Path) -> Batches:
    return walked(loader_of(kind(path)), lambda batch: len(batch["c0"]))


def polars(path: Path) -> Batches:
    import polars
    import torch

    frame = polars.read_parquet(path, columns=COLUMNS)

    def one_pass() -> Iterator[int]:
        shuffled = frame.sample(fraction=1.0, shuffle=True)
        for some in shuffled.iter_slices(BATCH):
            made = [
                torch.from_numpy((some[name].explode() if name[0] == "l" else some[name]).to_numpy(writable=True))
                for name in COLUMNS
            ]
            yield len(made[0])

    return one_pass


def hugging_face(path: Path) -> Batches:
    import datasets

    loaded = datasets.Dataset.from_parquet(str(path), columns=COLUMNS, cache_dir=str(path.with_suffix(".hf")))
    return walked(loader_of(loaded.with_format("torch")), lambda batch: len(batch["c0"]))


def images(path: Path) -> Batches:
    import flatout

    return walked(loader_of(flatout.table(path), batch=IMAGE_BATCH), lambda batch: len(batch["image"]))


class ImageLoop:
    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self.table = pq.read_table(path).combine_chunks()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: self.table.column(name)[index].as_py() for name in ("image", "label")}


CONTENDERS: dict[str, Callable[[Path], Batches]] = {
    "flatout.table, compiled": lambda path: of_table(path, compiled=True),
    "flatout.table": lambda path: of_table(path, compiled=False),
    "flatout.table, 2 workers": lambda path: of_table(path, compiled=False, workers=2),
    "flatout.table, mapped, compiled": mapped,
    "tensors in memory, by hand": by_hand,
    "TensorDataset, compiled": lambda path: tensors(path, compiled=True),
    "TensorDataset": lambda path: tensors(path, compiled=False),
    "pyarrow row by row": lambda path: rows_of(RowLoop, path),
    "pandas .iloc row by row": lambda path: rows_of(PandasRows, path),
    "polars sample": polars,
    "datasets, with_format torch": hugging_face,
    "flatout.table, larger than the memory": larger,
    "images: flatout.table": images,
    "images: pyarrow row by row": lambda path: walked(
        loader_of(ImageLoop(path), batch=IMAGE_BATCH), lambda batch: len(batch["image"])
    ),
}
NEEDS = {"pandas .iloc row by row": "pandas", "polars sample": "polars", "datasets, with_format torch": "datasets"}


def measure(name: str, path: Path, seconds: float) -> dict[str, Any]:
    """Return rows/s of the first pass, opening included, and of later ones; a first pass ends after 20 seconds."""
    import torch

    torch.manual_seed(0)
    begun = time.perf_counter()
    one_pass = CONTENDERS[name](path)
    opened_s, taken = time.perf_counter() - begun, 0
    for number in one_pass():
        taken += number
        if time.perf_counter() - begun > 20:
            break
    first = taken / (time.perf_counter() - begun)
    system, own = psutil.cpu_times(), psutil.Process().cpu_times()
    begun, taken = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        for number in one_pass():
            taken += number
            if (spent := time.perf_counter() - begun) >= seconds:
                break
    now, now_own = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(now[:3]) - sum(system[:3]) - (sum(now_own[:4]) - sum(own[:4]))
    own_s = sum(now_own[:4]) - sum(own[:4])
    later = {"later": taken / spent, "later_cpu": taken / own_s, "foreign": busy / spent}
    return {"first": first, "opened_s": opened_s} | later


def contender(name: str, path: Path, seconds: float, peers: Path, limit: int | None) -> dict[str, Any] | None:
    """Measure in a process of its own, in a control group with so much memory; None where that cannot be."""
    words = [sys.executable, "-W", "ignore", __file__, "--contender", name, str(path), "--seconds", str(seconds)]
    group = None if limit is None else GROUP / f"flatout-tables-{os.getpid()}"
    try:
        if group is not None:
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(limit))
            words = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *words]
        environment = os.environ | {"PYTHONPATH": str(peers)}
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    finally:
        if group is not None and group.is_dir():
            group.rmdir()
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def let_go(path: Path) -> None:
    """Have the system forget the pages of all files in a folder."""
    for one in path.glob("*") if path.is_dir() else ():
        with one.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def there(name: str, peers: Path) -> bool:
    code = f"import sys; sys.path.insert(0, {str(peers)!r}); import {NEEDS.get(name, 'flatout')}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders whose name has this word")
    parser.add_argument("--peers", action="store_true", help="install polars, pandas and datasets where missing")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    parser.add_argument("--contender", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        name, path = options.contender
        print(json.dumps(measure(name, Path(path), options.seconds)))
        return
    folder = Path(tempfile.gettempdir()) / "flatout-tables"
    folder.mkdir(exist_ok=True)
    path, pictures, peers = folder / f"{options.rows}.parquet", folder / "images.parquet", folder / "peers"
    if options.peers:
        missing = [package for name, package in NEEDS.items() if not there(name, peers)]
        if missing:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", peers, *missing], check=True)
    for each, make in ((path, lambda: write(path, options.rows)), (pictures, lambda: write_images(pictures))):
        if not each.exists():
            make()
    names = [name for name in CONTENDERS if options.only in name and there(name, peers)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            limit = options.rows * 168 // 2 + 300 * 2**20 if "larger" in name else None  # and what torch takes
            if limit is not None:
                let_go(path.with_suffix(".cache"))
            one = contender(name, pictures if "images" in name else path, options.seconds, peers, limit)
            found[name] += [one] if one is not None else []
    show({name: each for name, each in found.items() if each}, options.record)


def show(found: dict[str, list[dict[str, Any]]], recorded: bool) -> None:
    print(
        f"{'rows/s, medians and ranges':<40} {'first pass':>12} {'later':>12} {'later, by CPU s':>16}   foreign cores"
    )
    for name, each in found.items():
        first, later = (sorted(one[key] for one in each) for key in ("first", "later"))
        foreign = statistics.median(one["foreign"] for one in each)
        middle, by_cpu = statistics.median(later), statistics.median(one["later_cpu"] for one in each)
        print(
            f"{name:<40} {statistics.median(first) / 1e6:10.3f} M {middle / 1e6:10.3f} M {by_cpu / 1e6:14.3f} M   "
            f"{later[0] / 1e6:.3f} to {later[-1] / 1e6:.3f} M, n={len(each)}   {foreign:.2f}"
        )
        if recorded:
            more = {
                "n": len(each),
                "n_of": "processes in turns",
                "unit": "rows/s",
                "note": f"{foreign:.1f} foreign cores",
            }
            record("tables", f"{name}: later passes", middle, low=later[0], high=later[-1], **more)
            record("tables", f"{name}: first pass", statistics.median(first), low=first[0], high=first[-1], **more)
    for name, (later, first) in GOALS.items():
        if name in found:
            middle = statistics.median(one["later"] for one in found[name])
            start = statistics.median(one["first"] for one in found[name])
            met = middle >= later and (first is None or start >= first)
            print(f"goal of {name}: {later / 1e6:.0f} M later{f', {first / 1e6} M first' if first else ''}: ", end="")
            print("met" if met else "MISSED")


if __name__ == "__main__":
    main()
