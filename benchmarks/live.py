"""What `flatout run --live` costs: the same training by hand and shown live, side by side, block by block.

The method is that of run_overhead.py: two processes of one script wait for their turn on stdin, one start gives one
ratio, the interval is over starts, and a pair of plain processes shows what the method itself can tell. That is the
cost of the probes in the training's process. What flatout's own process takes of a core for looking at the machine and
for drawing is counted apart: it takes no time from a training that leaves a core idle, and as much as it says from one
that does not. The panel is drawn on a terminal of 80 x 40 that nobody looks at.

    python benchmarks/live.py [--quick]
"""

import fcntl
import os
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import psutil
from run_overhead import WORKLOADS, compare_ways
from run_overhead import start as start_plain

from flatout.engine.recipe import RECIPE_FILE

WAYS = ("by hand", "live")
GOAL = "goal: <= 1% at 10 ms steps; <= 20 us a step at 0.3 ms steps, as the light probes (overhead.py)"

SHARES: list[float] = []
"""Of a core, that flatout's own process took, for each start."""


class Shown(subprocess.Popen):
    """The training under --live, with a terminal as stderr that is read and thrown away."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        super().__init__(
            [sys.executable, "-m", "flatout", "run", "--live", "--recipe", f"empty recipe/{RECIPE_FILE}",
             "train.py", *arguments],
            cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        )  # fmt: skip
        os.close(theirs)
        threading.Thread(target=self._throw_away, daemon=True).start()

    def _throw_away(self) -> None:
        try:
            while os.read(self.ours, 1 << 16):
                pass
        except OSError:
            os.close(self.ours)

    def ready(self) -> None:
        """Wait until the script is warm; its time counts from here."""
        if self.stdout.readline() != "ready\n":
            sys.exit("live: the script did not begin")
        self.since, self.before = time.monotonic(), self._taken_s()

    def _taken_s(self) -> float:
        return sum(psutil.Process(self.pid).cpu_times()[:2])

    def communicate(self, *args, **kwargs):
        """End it, and note what flatout took."""
        SHARES.append((self._taken_s() - self.before) / (time.monotonic() - self.since))
        return super().communicate(*args, **kwargs)


def start(folder: Path, way: str, workload: str) -> subprocess.Popen:
    """Start the script by hand or shown, and wait until it is warm."""
    if way == "by hand":
        return start_plain(folder, way, workload)
    process = Shown(folder, [str(Path(__file__).parent), *(str(value) for value in WORKLOADS[workload])])
    process.ready()
    return process


def own_share() -> str:
    """Tell what flatout's own processes took since the last time, where there were any."""
    told = f"  flatout itself {100 * statistics.mean(SHARES):.1f}% of a core" if SHARES else ""
    SHARES.clear()
    return told


def main() -> None:
    compare_ways(WAYS, GOAL, start, own_share)


if __name__ == "__main__":
    main()
