"""Whether a tune that is killed at a random moment goes on to the recipe that it would have come to.

The script sleeps three times as long as it works; one fix, switched inside the process, halves that, another, between
processes, leaves two fifths of it, and a third fails. Each is a gain of 1.5x on top of the other: one that is in
doubt would be kept by one tune and not by the next, killed or not. Sleeping is as long on a busy machine as on an
idle one.

One tune is left alone; then others are killed with -9 at a moment drawn evenly from its length, and the same command
is given again until it ends by itself. Counted: other recipes, processes left behind, files of the user's that changed.

    python benchmarks/resume.py [--quick] [--kills N]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

import psutil
from tunes import SCRIPTS, write_project

from flatout.machine import processor_name

GOAL = "goal: the same recipe each time, no process left, no file changed"
FIXES = """
import waiting
from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence


def _waiting(factor):
    def patch(site):
        def make(original):
            def spin(seconds):
                site.hit("spin")
                original(seconds * factor)

            return spin

        site.wrap("waiting:spin", make)

    return patch


def _failing(site):
    def make(original):
        def spin(seconds):
            site.hit("spin")
            raise MemoryError("made to fail")

        return spin

    site.wrap("waiting:spin", make)


def _fix(name, patch, **options):
    return Fix(name=name, equivalence=Equivalence.BITWISE, phases=(Phase.HOST,), patch=patch, **options)


FIXES = (
    _fix("made-to-fail", _failing, switchable=True),
    _fix("waits-half", _waiting(0.5), switchable=True),
    _fix("waits-less-apart", _waiting(0.4)),
)
"""
NAMES = (
    "made-to-fail",
    "waits-half",
    "waits-less-apart",
)
WASTED = 3.0  # of the work of a step
BUDGET = "300s"  # it needs about 100 on an idle machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 kills in place of 25")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kills = options.kills or (3 if options.quick else 25)
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}; {GOAL}")
    rng = random.Random(options.seed)
    script = next(iter(SCRIPTS))
    with tempfile.TemporaryDirectory() as name:
        wanted, length_s, _ = whole(Path(name), script, kill_after_s=None)
    print(f"left alone: {wanted} in {length_s:.0f} s", flush=True)
    good = 0
    for number in range(1, kills + 1):
        moment_s = rng.uniform(0, length_s)
        with tempfile.TemporaryDirectory() as name:
            found, seconds, faults = whole(Path(name), script, kill_after_s=moment_s)
        same = found == wanted and not faults
        good += same
        print(f"{number:3d} killed after {moment_s:5.1f} s, then {seconds:5.1f} s: {found} {faults or ''}", flush=True)
    print(f"{good} of {kills} came to the recipe of the tune that was left alone, with nothing left behind")
    sys.exit(0 if good == kills else 1)


def whole(folder: Path, script: str, kill_after_s: float | None) -> tuple[list[str], float, list[str]]:
    """Tune, killed once if asked; return the kept fixes, the seconds of the last command, and what went wrong."""
    environment = write_project(folder, script, FIXES, WASTED)
    (folder / "waiting.py").write_text("from time import sleep\n\n\ndef spin(seconds):\n    sleep(seconds)\n")
    only = [word for fix in NAMES for word in ("--only", fix)]
    command = [sys.executable, "-m", "flatout", "tune", "--budget", BUDGET, *only, "train.py"]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    faults = []
    if kill_after_s is not None:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        faults += [f"process {left} was left" for left in _left_after(folder, 12.0)]
    start = time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    seconds = time.monotonic() - start
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix == ".py"}
    faults += [f"{name} changed" for name in after if before.get(name) != after[name]]
    recipe = folder / "flatout.toml"
    body = tomllib.loads(recipe.read_text()) if recipe.exists() else {}
    kept = [fix["name"] for fix in body.get("fix", [])]
    if len(kept) < 2 or faults:  # show why
        faults += [line for path in folder.glob(".flatout/*/*/trials.jsonl") for line in path.read_text().splitlines()]
    return kept, seconds, faults


def _left_after(folder: Path, longest_s: float) -> list[int]:
    """Return the processes that are still there after `longest_s` seconds; none as soon as all have gone."""
    until = time.monotonic() + longest_s
    while (left := _left(folder)) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def _left(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLATOUT_ORDER", "").startswith(str(folder)):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


if __name__ == "__main__":
    main()
