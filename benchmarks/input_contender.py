"""One contender of `input_pipeline.py`, timed in a process of its own; the result is one line of JSON.

    python benchmarks/input_contender.py WORKLOAD CONTENDER SETTING SECONDS

Batches are taken and dropped. The first pass is timed from before the loader is first asked: whole for the compiled
loader, up to SECONDS for the others, for whom it is the warm-up. Then batches are counted for SECONDS of wall clock,
over as many passes as there are. What other processes use of the cores meanwhile is taken down.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psutil
import torch
from input_by_hand import BY_HAND, BY_HAND_ON_DEVICE, same_bits
from input_peers import PEERS
from input_workloads import WORKLOADS, Setting, make_loader

__all__ = ["main"]

LONGEST_FIRST_PASS_S = 60.0
FIRST_BATCHES = 3


@dataclass
class Contender:
    """The way to one pass, and what is known about it beside its speed."""

    one_pass: Callable[[], Iterator[Any]]
    first_pass_s: float
    explain: Callable[[], str] = lambda: ""
    comparable: bool = False  # its batches come in the plain loader's order
    same: bool | None = None


@dataclass
class Stream:
    """Batches without end, pass after pass; notes when a pass was begun and how long its first batch took."""

    one_pass: Callable[[], Iterator[Any]]
    pauses_s: list[float] = field(default_factory=list)
    passes: int = 0

    def __iter__(self) -> Iterator[Any]:
        ended = None
        while True:
            for batch in self.one_pass():
                if ended is not None:
                    self.pauses_s.append(time.perf_counter() - ended)
                    ended = None
                yield batch
            self.passes += 1
            ended = time.perf_counter()


def make(name: str, workload_name: str, setting: Setting, seconds: float) -> Contender:
    """Prepare one contender; what it prepares beforehand is not timed."""
    workload = WORKLOADS[workload_name]
    kind, _, rest = name.partition(": ")
    if kind == "by hand":
        one_pass = BY_HAND[workload_name][rest](setting, workload)
        same = None if workload.random else same_bits(one_pass, workload, setting)
        return Contender(one_pass, seconds, same=same)
    if kind == "by hand on a device":
        return Contender(BY_HAND_ON_DEVICE[workload_name][rest](setting, workload), seconds)
    if kind == "peer":
        return Contender(PEERS[workload_name][rest](setting, workload), seconds)
    loader = make_loader(workload, setting, int(rest.split()[0]))
    if kind == "plain":
        return Contender(lambda: iter(loader), seconds, comparable=True)
    from flatout.pipeline import compile_loader

    compiled = compile_loader(loader, device="cuda" if kind == "on a device" else None)
    limit = max(seconds, LONGEST_FIRST_PASS_S)
    return Contender(lambda: iter(compiled), limit, explain=compiled.explain, comparable=True)


def size(batch: Any) -> int:
    while not hasattr(batch, "shape"):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return int(batch.shape[0])


def digest(batches: list[Any]) -> str:
    """Return a mark of the batches' types, strides and bits."""
    mark = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            mark.update(repr((part.dtype, part.shape, part.stride())).encode())
            mark.update(part.contiguous().cpu().numpy().tobytes())
        else:
            for inner in part:
                add(inner)

    add(batches)
    return mark.hexdigest()[:16]


def measure(contender: Contender, seconds: float) -> dict[str, Any]:
    """Return samples/s of the first pass and of later ones, and what there is to say about them."""
    stream = Stream(contender.one_pass)
    torch.manual_seed(0)
    start = time.perf_counter()
    batches = iter(stream)
    kept, taken, held, first_batch_s = [], 0, None, 0.0
    while not stream.passes and (len(kept) < FIRST_BATCHES or time.perf_counter() - start < contender.first_pass_s):
        held = next(batches)
        if stream.passes:
            break
        taken += size(held)
        first_s = time.perf_counter() - start
        if len(kept) < FIRST_BATCHES:
            first_batch_s = first_s if not kept else first_batch_s
            kept.append(held)
    first = taken / first_s
    whole = stream.passes > 0
    digests = [digest(kept)] if contender.comparable else []
    kept.clear()
    rate, foreign = window(batches, seconds)
    pauses = stream.pauses_s
    result = {"first": first, "whole": whole, "later": rate, "foreign": foreign, "explain": contender.explain()}
    result["first_batch_ms"] = 1e3 * first_batch_s
    if contender.comparable:
        torch.manual_seed(1)
        again = contender.one_pass()
        digests.append(digest(list(islice(again, FIRST_BATCHES))))
    return result | {"digests": digests, "same": contender.same, "pause_ms": 1e3 * max(pauses) if pauses else None}


def window(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """Count samples for `seconds`; return samples/s and the cores that other processes used."""
    system, own = busy_s(), own_s()
    taken, start = 0, time.perf_counter()
    while True:
        taken += size(next(batches))
        wall = time.perf_counter() - start
        if wall >= seconds:
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()  # what was only started counts when it is done
                wall = time.perf_counter() - start
            return taken / wall, max(0.0, (busy_s() - system - (own_s() - own)) / wall)


def busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times[:8]) - times.idle - getattr(times, "iowait", 0.0))


def own_s() -> float:
    me = psutil.Process()
    total = sum(me.cpu_times()[:4])
    for child in me.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue
    return float(total)


def main() -> None:
    """Time the contender that the command line names."""
    workload_name, name, told, seconds = sys.argv[1:]
    setting = Setting(**json.loads(told))
    contender = make(name, workload_name, setting, float(seconds))
    print(json.dumps(measure(contender, float(seconds))), flush=True)


if __name__ == "__main__":
    main()
