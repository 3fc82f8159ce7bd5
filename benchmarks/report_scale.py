"""What a report of 100,000 steps costs: reading the recording, the page's time and size, and its first paint.

The paint is timed by Debian's chromium, from the disk, several times; without it that figure is left out.

    python benchmarks/report_scale.py [--quick]
"""

import argparse
import datetime
import html
import json
import math
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from flatout.cli.recordings import read_report
from flatout.report.html.page import page
from flatout.schema.codec import RUN_FILE, write_run
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import End, Environment, Header, Run, Step, Utilization

GOALS = {"rendered": 3.0, "size": 2.0, "paint": 1.0}

PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const place = document.createElement("pre"); place.id = "paint";
  place.textContent = JSON.stringify(performance.getEntriesByName("first-contentful-paint").map(one => one.startTime));
  document.body.append(place);
}, 500));</script></body>"""


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
    """Return the seconds from navigation to first paint of each start of the browser; none where there is none."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return []
    file.write_text(file.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    found = []
    for _ in range(number):
        with tempfile.TemporaryDirectory() as profile:
            words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--timeout=8000"]
            words += ["--dump-dom", file.as_uri()]
            done = subprocess.run([chromium, *words], capture_output=True, text=True, timeout=120)
        told = re.search(r'<pre id="paint">(.*?)</pre>', done.stdout)
        times = json.loads(html.unescape(told[1])) if told else []
        found += [time_ms / 1000 for time_ms in times[:1]]
    return found


def line(name: str, values: list[float], unit: str, goal: float) -> None:
    """Print the median and the range beside the goal."""
    if not values:
        print(f"{name:28s} not measured: no chromium here, or it told nothing")
        return
    middle = statistics.median(values)
    word = "met" if middle < goal else "MISSED"
    print(
        f"{name:28s} {middle:7.2f} {unit}   {min(values):.2f} to {max(values):.2f}, n={len(values)}   "
        f"goal < {goal:g} {unit}: {word}"
    )


def main() -> None:
    """Print what the report costs beside its goals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="once each")
    number = 1 if parser.parse_args().quick else 7
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
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
        print(f"{'100,000 steps, to be read':28s} {statistics.median(reading):7.2f} s   n={number}")
        line("the page rendered", rendering, "s", GOALS["rendered"])
        line("its size", [size], "MiB", GOALS["size"])
        line("first paint", paints(shown, number), "s", GOALS["paint"])


if __name__ == "__main__":
    main()
