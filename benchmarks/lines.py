"""How true the line sampler is: shares of known lines, as they are and as each of its two clocks sees them.

`python benchmarks/lines.py [--turns 8]`; n turns of every loop, the clocks in turn within each.
"""

import argparse
import contextlib
import inspect
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from flatout.probe.system import line_sampler
from flatout.schema.phase import Phase

_SECONDS = 1.0


def _python(number: int) -> int:
    total = 0
    for each in range(number):
        total += each * each & 7
    return total


def short_python_and_operations() -> tuple[int, ...]:
    """Python of some 18 us beside operations of a few."""
    first = _python(180)
    second = torch.rand(64)
    third = torch.zeros(64)
    return first, len(second), len(third)


def python_beside_a_matrix_product() -> tuple[int, ...]:
    """Python and one operation of about the same length, which is an operator and no call."""
    first = _python(2000)
    second = _SQUARE @ _SQUARE
    return first, len(second)


def long_python_before_operations() -> tuple[int, ...]:
    """Some 5 ms of Python, in which nothing lets go of the lock, and then operations."""
    first = sum(_python(10) for _ in range(5000))
    second = torch.rand(20_000)
    third = _SQUARE @ _SQUARE
    return first, len(second), len(third)


def python_among_short_calls_that_hold_the_lock() -> tuple[int, ...]:
    """Calls of some 300 us that hold the lock, Python between them, and then an operation."""
    first = [np.sort(_NUMBERS[:6000]).size + _python(1000) for _ in range(10)]
    second = _SQUARE @ _SQUARE
    return first[0], len(second)


def operators_alone() -> tuple[int, ...]:
    """Short operators, no calls: a look that is asked for meanwhile comes later, unless they let go of the lock."""
    first = _VECTOR * 2 + 1
    second = _VECTOR @ _VECTOR
    third = _python(100)
    return len(first), second.dim(), third


def library_that_holds_the_lock() -> tuple[int, ...]:
    """NumPy and JSON hold the interpreter's lock while they work."""
    first = np.sort(_NUMBERS).size
    second = len(json.dumps(_RECORD))
    third = torch.randn(20_000).sum()
    return first, second, int(third.numel())


def freed_before_a_function() -> tuple[int, ...]:
    """What a name held is freed where the interpreter does not look; it looks when the next function begins."""
    first = list(range(30_000))
    del first
    second = _python(10)
    return (second,)


_SQUARE = torch.rand(200, 200)
_VECTOR = torch.rand(20_000)
_NUMBERS = np.random.default_rng(0).permutation(20_000)
_RECORD = {str(number): list(range(20)) for number in range(20)}
_LOOPS = (
    short_python_and_operations, python_beside_a_matrix_product, long_python_before_operations,
    python_among_short_calls_that_hold_the_lock, operators_alone, library_that_holds_the_lock, freed_before_a_function,
)  # fmt: skip


def _timed(loop: Callable[[], object], seconds: float) -> list[float]:
    """Return the share of each line of `loop`, timed by a copy of it that reads the clock between its lines."""
    source, _ = inspect.getsourcelines(loop)
    body = [line for line in source if line.startswith("    ") and not line.lstrip().startswith(('"""', "return"))]
    text = ["def timed():", "    times = [clock()]"]
    for line in body:
        text += [line.rstrip("\n"), "    times.append(clock())"]
    scope = dict(vars(sys.modules[__name__]), clock=time.perf_counter_ns)
    exec("\n".join([*text, "    return times"]), scope)
    sums, began = [0] * len(body), time.perf_counter()
    empty = statistics.median(-time.perf_counter_ns() + time.perf_counter_ns() for _ in range(1000))
    while time.perf_counter() - began < seconds:
        times = scope["timed"]()
        for number in range(len(body)):
            sums[number] += max(0.0, times[number + 1] - times[number] - empty)
    return [each / sum(sums) for each in sums]


@contextlib.contextmanager
def _without_the_clock_in_c() -> Iterator[None]:
    kept, line_sampler._ticks = line_sampler._ticks, None
    try:
        yield
    finally:
        line_sampler._ticks = kept


def _seen(loop: Callable[[], object], seconds: float) -> list[float]:
    """Return the share of each line of `loop` that a sampler sees."""
    source, first = inspect.getsourcelines(loop)
    numbers = [
        first + at
        for at, line in enumerate(source)
        if line.startswith("    ") and not line.lstrip().startswith(('"""', "return"))
    ]
    sampler = line_sampler.LineSampler("main", line_sampler.Doing((Phase.HOST, "lead")))
    sampler.start()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop()
    sampler.stop()
    sums = dict.fromkeys(numbers, 0.0)
    for cost in sampler.costs():
        for frame in cost.stack:
            if frame.function == loop.__name__ and frame.line in sums:
                sums[frame.line] += cost.seconds
    whole = sum(sums.values())
    return [each / whole for each in sums.values()]


def _told(shares: list[list[float]]) -> str:
    return "  ".join(
        f"{statistics.mean(line):4.0%} ({min(line):.0%} to {max(line):.0%})".ljust(18)
        for line in zip(*shares, strict=True)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=8)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    print(f"shares of the lines of a loop, n={turns} turns of {_SECONDS:g} s: mean (least to most)")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}\n")
    for loop in _LOOPS:
        truth, clock, thread = [], [], []
        for _ in range(turns):
            truth.append(_timed(loop, _SECONDS))
            clock.append(_seen(loop, _SECONDS))
            with _without_the_clock_in_c():
                thread.append(_seen(loop, _SECONDS))
        print(loop.__name__.replace("_", " "))
        for name, shares in (("timed by hand", truth), ("the clock in C", clock), ("a Python thread", thread)):
            print(f"  {name:16} {_told(shares)}")
        print(flush=True)


if __name__ == "__main__":
    main()
