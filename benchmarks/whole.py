"""What the record of a whole training costs: 1,000,000 steps on a simulated clock, in memory, on disk, and to report.

python benchmarks/whole.py --quick
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flatout.probe.system.whole_file import WholePart
from flatout.schema.codec import RUN_FILE, write_run
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import End, Header, Outside, Step

GOALS = {"memory": 200, "disk": 100, "report": 5.0}


def simulate(folder: Path, num_steps: int) -> tuple[float, float]:
    """Feed steps of 10 ms in epochs of 1000 to the part file; return microseconds a step and MiB of memory more."""
    from flatout.schema.phase import Phase

    (folder / "parts").mkdir(parents=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    part = WholePart(folder / "parts" / "whole-rank0-1.jsonl")
    part.put("header", Header(script="train.py", mode="whole"))
    phases = (3_000_000, 0, 3_000_000, 3_000_000, 500_000, 0, 0, 500_000)[: len(STEP_PHASES)]
    begin = time.perf_counter()
    for number in range(num_steps):
        start = number * 10_000_000
        jitter = number * 7919 % 1_000_000
        parts = (phases[0] + jitter, *phases[1:])
        part.step(Step(start, sum(parts), parts, 1, number // 1000, number % 1000 == 0, False, (0, 0, 0), ()))
        if number % 1000 == 999:
            part.outside(Outside(phase=Phase.VALIDATION, start_ns=start, wall_ns=100_000_000))
    us = (time.perf_counter() - begin) / num_steps * 1e6
    part.put("end", End(reason="script ended", at_ns=num_steps * 10_000_000))
    part.close()
    return us, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> int:
    """Print memory, disk and the time of the report beside their goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100,000 steps")
    num_steps = 100_000 if parser.parse_args().quick else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        us, mib = simulate(folder, num_steps)
        from flatout.engine.process.collect import collect_run

        run = collect_run(folder / "parts", "whole")
        assert run is not None and run.num_steps > num_steps - run.steps_each
        write_run(run, folder / RUN_FILE)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
        begin = time.perf_counter()
        env = {**os.environ, "COLUMNS": "80"}
        command = [sys.executable, "-m", "flatout", "report", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
        report_s = time.perf_counter() - begin
    sys.stdout.write(
        f"{num_steps:,} steps, kept as {len(run.steps):,} means of {run.steps_each}\n"
        f"memory more     {mib:8.1f} MiB  goal < {GOALS['memory']}\n"
        f"disk            {size:8.1f} MiB  goal < {GOALS['disk']}\n"
        f"report          {report_s:8.2f} s    goal < {GOALS['report']:.0f}\n"
        f"to keep a step  {us:8.2f} us\n"
    )
    met = mib < GOALS["memory"] and size < GOALS["disk"] and report_s < GOALS["report"]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
