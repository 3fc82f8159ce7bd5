"""How long the parent takes to be there: `import flatout` and `flatout --help`, in fresh processes.

`import flatout` is the difference to a bare interpreter started right before it; the orders alternate, so that a
slow moment of the machine falls on both. `flatout --help` is the whole wait, interpreter included.

    python benchmarks/startup.py [--record]
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from record import record

from flatout.machine import processor_name

ROUNDS = 15
GOALS_MS = {"import flatout": 50, "flatout --help": 200}
BARE = [sys.executable, "-c", "pass"]
IMPORT = [sys.executable, "-c", "import flatout"]
HELP = [str(Path(sys.executable).with_name("flatout")), "--help"]


def wall_ms(command: list[str]) -> float:
    start = time.perf_counter_ns()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter_ns() - start) / 1e6


def one_round(commands: list[list[str]], number: int) -> list[float]:
    """Time each command once, forwards in even rounds and backwards in odd ones."""
    order = range(len(commands)) if number % 2 == 0 else reversed(range(len(commands)))
    taken = {index: wall_ms(commands[index]) for index in order}
    return [taken[index] for index in range(len(commands))]


def show(name: str, values_ms: list[float], recorded: bool) -> None:
    low, median, high = statistics.quantiles(values_ms, n=4)
    verdict = "met" if median < GOALS_MS[name] else "MISSED"
    print(
        f"{name:<16} {median:6.1f} ms   quartiles {low:.1f} to {high:.1f}, n={len(values_ms)}"
        f"   goal < {GOALS_MS[name]} ms: {verdict}"
    )
    if recorded:
        more = {"low": low, "high": high, "n": len(values_ms), "n_of": "starts", "unit": "ms", "note": "quartiles"}
        record("startup", name, median, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    options = parser.parse_args()
    commands = [BARE, IMPORT, HELP]
    one_round(commands, 0)  # reads the files into the page cache and writes the byte code
    rounds = [one_round(commands, number) for number in range(ROUNDS)]
    print(f"Python {platform.python_version()}, torch {version('torch')}, click {version('click')}, {processor_name()}")
    print(f"a bare interpreter: {statistics.median(bare for bare, _, _ in rounds):.1f} ms")
    show("import flatout", [imported - bare for bare, imported, _ in rounds], options.record)
    show("flatout --help", [helped for _, _, helped in rounds], options.record)


if __name__ == "__main__":
    main()
