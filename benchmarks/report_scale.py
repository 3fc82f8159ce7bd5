"""What a report of 100,000 steps costs: reading the recording, the page's time and size, and until it is painted.

The paint is the time that Debian's chromium takes to open the page from disk and photograph it, less what it takes for
an empty page, in turn; without a browser that figure is left out.

    python benchmarks/report_scale.py [--quick] [--record]
"""

import argparse
import datetime
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from record import record

from flatout.cli.recordings import read_report
from flatout.machine import processor_name
from flatout.report.html.page import page
from flatout.schema.codec import RUN_FILE, write_run
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import End, Environment, Header, Run, Step, Utilization

GOALS = {"rendered": 3.0, "size": 2.0, "paint": 1.0}

EMPTY = "<!doctype html><title>empty</title>"


def recording(num_steps: int) -> Run:
    """Return a recording with steps that scatter and stall, their losses, and a sample of the machine each second."""
    chance = random.Random(0)
    now, steps = 3_000_000_000, []
    for number in range(num_steps):
        length = round(10_000_000 * math.exp(chance.gauss(0, 0.1))) + (200_000_000 if number % 997 == 0 else 0)
        parts = (length // 2, 0, length // 4, length // 8, length // 16, 0, 0, length // 16)[: len(STEP_PHASES)]
        steps.append(Step(now, sum(parts), parts, epoch=number // 1000, first_of_epoch=number % 1000 == 0))
        now += sum(parts)
    seconds = now // 1_000_000_000
    return Run(
        header=Header(script="train.py", argv=("train.py",), started_unix_s=time.time()),
        environment=Environment(device="AMD EPYC", num_cpus=2, torch="2.13.0"),
        steps=tuple(steps),
        losses=tuple(1 / (1 + number / 100) for number in range(num_steps)),
        utilization=tuple(Utilization(at_s=float(at), main_cpu=0.9, worker_cpu=0.5) for at in range(seconds)),
        samples_per_step=64.0,
        end=End(reason="steps", at_ns=now),
    )


def paints(file: Path, number: int) -> list[float]:
    """Return the seconds that the page takes beyond an empty one, each time; none where there is no browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return []
    empty = file.with_name("empty.html")
    empty.write_text(EMPTY, encoding="utf-8")
    return [photographed(chromium, file) - photographed(chromium, empty) for _ in range(number)]


def photographed(chromium: str, file: Path) -> float:
    """Return the seconds that a fresh browser takes from its start to the picture of a page."""
    with tempfile.TemporaryDirectory() as profile:
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        words += [f"--screenshot={profile}/picture.png", "--window-size=1100,1600", file.as_uri()]
        before = time.perf_counter()
        subprocess.run([chromium, *words], capture_output=True, timeout=120, check=True)
        return time.perf_counter() - before


def line(name: str, values: list[float], unit: str, goal: float) -> None:
    """Print the median and the range beside the goal."""
    if not values:
        print(f"{name:30s} not measured: no chromium here")
        return
    middle = statistics.median(values)
    word = "met" if middle < goal else "MISSED"
    print(
        f"{name:30s} {middle:7.2f} {unit}   {min(values):.2f} to {max(values):.2f}, n={len(values)}   "
        f"goal < {goal:g} {unit}: {word}"
    )


def main() -> None:
    """Print what the report costs beside its goals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="once each")
    parser.add_argument("--record", action="store_true", help="add the figures to benchmarks/history")
    options = parser.parse_args()
    number = 1 if options.quick else 7
    print(
        f"{processor_name()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"jinja2 {version('jinja2')}, {datetime.date.today()}, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / RUN_FILE
        write_run(recording(100_000), file)
        reading, rendering = [], []
        for _ in range(number):
            before = time.perf_counter()
            report = read_report(file)
            read = time.perf_counter()
            text = page(report)
            rendering.append(time.perf_counter() - read)
            reading.append(read - before)
        shown = Path(folder) / "report.html"
        shown.write_text(text, encoding="utf-8")
        size = shown.stat().st_size / 2**20
        print(f"{'100,000 steps, to be read':30s} {statistics.median(reading):7.2f} s   n={number}")
        line("the page rendered", rendering, "s", GOALS["rendered"])
        line("its size", [size], "MiB", GOALS["size"])
        painted = paints(shown, number)
        line("painted, beyond an empty one", painted, "s", GOALS["paint"])
    if options.record:
        keep("recording read", reading, "s")
        keep("page rendered", rendering, "s")
        keep("page size", [size], "MiB")
        keep("page painted, beyond an empty one", painted, "s")


def keep(metric: str, values: list[float], unit: str) -> None:
    """Add median and range to the history."""
    if values:
        low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
        more = {"n": len(values), "n_of": "times", "unit": unit, "note": "range" if len(values) > 1 else ""}
        record("report_scale", metric, statistics.median(values), low=low, high=high, **more)


if __name__ == "__main__":
    main()
