"""Objects per second from a store: `flatout.objects` and the ways that people take, in turns, each in a process.

    python benchmarks/objects.py [--objects 3000] [--seconds 5] [--rounds 3] [--peers] [--record] [--only WORD]

Objects of 100 KB of a server on loopback that answers as S3 does, 5 ms after it is asked, in a process of its own on
the same machine: its work counts against all of them alike. Batches of 64 from a DataLoader without workers, shuffled,
taken and dropped; `by hand` makes batches of as many without a loader. A pass is over all objects, or as many as fit
into the seconds. Cold: nothing is kept when it begins, and imports, signing and connections are counted; warm: the
second pass. `files`: as many bytes in files of a folder, opened sample by sample: what local speed is. `--peers`
installs s3fs and boto3 into the working folder first. What other processes use of the cores meanwhile is shown: ratios
of one run count, figures of a busy machine do not.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from record import record

SIZE, LATENCY_S, BATCH, IN_FLIGHT = 100_000, 0.005, 64, 64
HERE = Path(__file__).resolve().parent
FOLDER = Path(tempfile.gettempdir()) / "flatout-objects"
GOAL = 2_500  # reads/s, cold

Pass = Callable[[], Iterator[int]]  # gives numbers of objects


class PerSample:
    """A data set as it is often written: one object is asked for where one sample is."""

    def __init__(self, number: int, read: Callable[[int], bytes]) -> None:
        self.number, self.read = number, read

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> bytes:
        return self.read(index)


def url_of(at: int) -> str:
    return f"s3://bucket/{at:06}.bin"


def loaded(dataset: Any, workers: int = 0) -> Pass:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=list)
    return lambda: (checked(batch) for batch in loader)


def checked(batch: list[bytes]) -> int:
    assert all(len(data) == SIZE for data in batch)
    return len(batch)


def batches(number: int) -> Iterator[list[int]]:
    places = random.sample(range(number), number)
    return (places[at : at + BATCH] for at in range(0, number, BATCH))


def options(port: int) -> dict[str, Any]:
    return {"key": "any", "secret": "any", "endpoint_url": f"http://127.0.0.1:{port}"}


def ours(number: int, port: int, **more: Any) -> Any:
    import flatout

    kept = FOLDER / "kept"
    return flatout.objects([*map(url_of, range(number))], folder=kept, storage_options=options(port), **more)


def compiled(number: int, port: int) -> Pass:
    from torch.utils.data import DataLoader

    import flatout

    loader = flatout.compile_loader(DataLoader(ours(number, port), BATCH, shuffle=True, collate_fn=list))
    return lambda: (checked(batch) for batch in loader)


def forked_late(number: int, port: int) -> Pass:
    dataset = ours(number, port, max_bytes=0)
    assert dataset[0]
    return loaded(dataset, workers=1)


def fsspec_open(number: int, port: int) -> Pass:
    import s3fs

    system = s3fs.S3FileSystem(**options(port))

    def read(at: int) -> bytes:
        with system.open(url_of(at), "rb") as file:
            data: bytes = file.read()
            return data

    return loaded(PerSample(number, read))


def cat_ranges(number: int, port: int) -> Pass:
    import s3fs

    system = s3fs.S3FileSystem(**options(port))

    def one_pass() -> Iterator[int]:
        for places in batches(number):
            urls = [url_of(at) for at in places]
            yield checked(system.cat_ranges(urls, [0] * len(urls), [SIZE] * len(urls), batch_size=IN_FLIGHT))

    return one_pass


def boto3_each(number: int, port: int) -> Pass:
    import boto3

    given = options(port)
    session = boto3.session.Session(given["key"], given["secret"], region_name="us-east-1")
    client = session.client("s3", endpoint_url=given["endpoint_url"])
    return loaded(PerSample(number, lambda at: client.get_object(Bucket="bucket", Key=f"{at:06}.bin")["Body"].read()))


def store_of(port: int) -> Any:
    from obstore.store import S3Store

    client: Any = {"allow_http": True}
    endpoint = options(port)["endpoint_url"]
    return S3Store(
        "bucket", endpoint=endpoint, access_key_id="any", secret_access_key="any", client_options=client, region="a"
    )


def obstore_threads(number: int, port: int) -> Pass:
    import obstore

    store, pool = store_of(port), ThreadPoolExecutor(IN_FLIGHT)

    def one_pass() -> Iterator[int]:
        for places in batches(number):
            yield checked([*pool.map(lambda at: bytes(obstore.get(store, f"{at:06}.bin").bytes()), places)])

    return one_pass


def obstore_async(number: int, port: int) -> Pass:
    import obstore

    store = store_of(port)

    async def read(at: int) -> bytes:
        return bytes(await (await obstore.get_async(store, f"{at:06}.bin")).bytes_async())

    async def together(places: list[int]) -> list[bytes]:
        return await asyncio.gather(*map(read, places))

    def one_pass() -> Iterator[int]:
        with asyncio.Runner() as runner:
            for places in batches(number):
                yield checked(runner.run(together(places)))

    return one_pass


def files(number: int, port: int) -> Pass:
    folder = FOLDER / "files"
    folder.mkdir(exist_ok=True)
    for at in range(number):
        if not (folder / f"{at:06}").exists():
            (folder / f"{at:06}").write_bytes(os.urandom(SIZE))
    return loaded(PerSample(number, lambda at: (folder / f"{at:06}").read_bytes()))


CONTENDERS: dict[str, Callable[[int, int], Pass]] = {
    "flatout.objects": lambda number, port: loaded(ours(number, port)),
    "flatout.objects, kept by an earlier run": lambda number, port: loaded(ours(number, port)),
    "flatout.objects, immutable, kept by an earlier run": lambda number, port: loaded(
        ours(number, port, immutable=True)
    ),
    "flatout.objects, nothing kept": lambda number, port: loaded(ours(number, port, max_bytes=0)),
    "flatout.objects, compiled": compiled,
    "flatout.objects, a worker forked after a read, nothing kept": forked_late,
    "obstore by hand, threads": obstore_threads,
    "obstore by hand, async": obstore_async,
    "s3fs cat_ranges by hand": cat_ranges,
    "s3fs open per sample": fsspec_open,
    "boto3 get_object per sample": boto3_each,
    "files, opened per sample": files,
}
NEEDS = {
    "s3fs cat_ranges by hand": "s3fs",
    "s3fs open per sample": "s3fs",
    "boto3 get_object per sample": "boto3",
}
EARLIER = "kept by an earlier run"


def measure(name: str, number: int, port: int, seconds: float) -> dict[str, float]:
    """Return objects/s of the first pass, all that it needs included, and of the second."""
    import torch

    torch.manual_seed(0)
    random.seed(0)
    found, one_pass = {}, None
    for which in ("cold", "warm"):
        system, begun, own = psutil.cpu_times(), time.perf_counter(), psutil.Process().cpu_times()
        one_pass = one_pass or CONTENDERS[name](number, port)
        if name.startswith("files"):
            begun = time.perf_counter()  # they were made first
        taken = 0
        for each in one_pass():
            taken += each
            if time.perf_counter() - begun > seconds:
                break
        spent, now, now_own = time.perf_counter() - begun, psutil.cpu_times(), psutil.Process().cpu_times()
        own_s = sum(now_own[:2]) - sum(own[:2])
        found |= {which: taken / spent, f"{which}_ms": 1e3 * own_s / taken}
        found[f"{which}_busy"] = (sum(now[:3]) - sum(system[:3]) - own_s) / spent
    return found


def contender(name: str, number: int, port: int, seconds: float, peers: Path) -> dict[str, float] | None:
    if EARLIER not in name:
        shutil.rmtree(FOLDER / "kept", ignore_errors=True)
    else:  # somebody has kept all of them
        words = [sys.executable, "-W", "ignore", __file__, "--contender", "flatout.objects", str(number), str(port)]
        subprocess.run([*words, "--seconds", "999"], check=True, capture_output=True)
    words = [sys.executable, "-W", "ignore", __file__, "--contender", name, str(number), str(port)]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(peers))))
    done = subprocess.run(
        [*words, "--seconds", str(seconds)], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def there(name: str, peers: Path) -> bool:
    package = NEEDS.get(name, "obstore")
    return (peers / package).is_dir() or importlib.util.find_spec(package) is not None


def in_turns(given: argparse.Namespace, peers: Path) -> dict[str, list[dict[str, float]]]:
    names = [name for name in CONTENDERS if given.only in name and there(name, peers)]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    words = [sys.executable, str(HERE / "object_server.py"), str(given.objects), str(SIZE), str(LATENCY_S)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            for number in range(given.rounds):
                for name in names if number % 2 == 0 else reversed(names):
                    got = contender(name, given.objects, port, given.seconds, peers)
                    if got is not None:
                        found[name].append(got)
                        print(f"  {number + 1}: {name}: {got['cold']:,.0f} cold, {got['warm']:,.0f} warm", flush=True)
        finally:
            server.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--objects", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders whose name has this word")
    parser.add_argument("--peers", action="store_true", help="install s3fs and boto3 where missing")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    parser.add_argument("--contender", nargs=3, metavar=("NAME", "NUMBER", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        name, number, port = given.contender
        print(json.dumps(measure(name, int(number), int(port), given.seconds)))
        return
    FOLDER.mkdir(exist_ok=True)
    peers = FOLDER / "peers"
    if given.peers:
        missing = sorted({package for name, package in NEEDS.items() if not there(name, peers)})
        if missing:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", peers, *missing], check=True)
    found = in_turns(given, peers)
    print(f"\n{'objects/s (median, lowest to highest)':58} {'cold':>24} {'warm':>24}  ms of cpu  others' cores")
    for name, rounds in found.items():
        if rounds:
            shown = [spread([each[which] for each in rounds]) for which in ("cold", "warm")]
            cpu, busy = (statistics.median(each[which] for each in rounds) for which in ("cold_ms", "cold_busy"))
            mark = f"  goal {GOAL:,}" if name == "flatout.objects" else ""
            print(f"{name:58} {shown[0]:>24} {shown[1]:>24}  {cpu:9.2f}  {busy:13.2f}{mark}")
            if given.record:
                for which in ("cold", "warm"):
                    noted(name, which, [each[which] for each in rounds])
    shutil.rmtree(FOLDER / "kept", ignore_errors=True)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def noted(name: str, which: str, values: list[float]) -> None:
    record(
        "objects",
        f"{name}, {which}",
        statistics.median(values),
        low=min(values),
        high=max(values),
        n=len(values),
        n_of="processes, in turns",
        unit="objects/s",
    )


if __name__ == "__main__":
    main()
