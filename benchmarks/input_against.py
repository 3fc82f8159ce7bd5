"""Two checkouts of flatout on the workloads of `input_pipeline.py`, run by run in turn: what a change costs.

Each run is a fresh process. Told are samples/s of later passes and of the first one, and how long the first batch
takes, looking at the data set included; the ratio is of the medians. CHECKOUT holds the other code, with its compiled
parts built (`python setup.py build_ext --inplace`); `git worktree add` makes one.

    python benchmarks/input_against.py CHECKOUT [WORKLOAD ...] [--rounds N] [--seconds S] [--out FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from input_pipeline import DISTURBED, head, short
from input_workloads import WORKLOADS, Setting, loops_per_ms, write_photos

HERE = Path(__file__).resolve().parent
LIMIT_S = 240.0
COLUMNS = (
    "workload",
    "workers",
    "later",
    "",
    "ratio",
    "range",
    "first pass",
    "",
    "ratio",
    "first batch ms",
    "",
    "bits",
)

Results = dict[str, list[dict[str, Any]]]
"""Of "before" and "now", what each run gave."""


def one_run(checkout: Path, workload: str, workers: int, setting: Setting, seconds: float) -> dict[str, Any]:
    """Time the compiled loader of a checkout in a fresh process.

    Raises:
        SystemExit: it gave no result.
    """
    words = [sys.executable, HERE / "input_contender.py", workload, f"compiled: {workers} workers"]
    words += [json.dumps(asdict(setting)), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{checkout}, {workload}: no result\n{done.stderr}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def compared(name: str, workers: int, found: Results) -> list[str]:
    """Return the cells of a row."""
    before, now = found["before"], found["now"]

    def median(runs: list[dict[str, Any]], which: str) -> float:
        return statistics.median(run[which] for run in runs)

    later, first = ((median(before, which), median(now, which)) for which in ("later", "first"))
    ratios = sorted(one["later"] / other["later"] for one, other in zip(now, before, strict=True))
    marks = [run["digests"] for run in (*before, *now)]
    same = "random" if WORKLOADS[name].random else "same" if all(each == marks[0] for each in marks) else "DIFFER"
    noisy = "!" * any(run["foreign"] > DISTURBED for run in (*before, *now))
    return [
        name, str(workers), short(later[0]), short(later[1]) + noisy, f"{later[1] / later[0]:.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}", short(first[0]), short(first[1]), f"{first[1] / first[0]:.2f}",
        f"{median(before, 'first_batch_ms'):.0f}", f"{median(now, 'first_batch_ms'):.0f}", same,
    ]  # fmt: skip


def text_of(heading: str, rows: list[list[str]]) -> str:
    """Return the table; before stands left of now."""
    lines = [list(COLUMNS), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join([heading, *("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
                                 for line in lines)])  # fmt: skip


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="the code that this checkout's is held against")
    parser.add_argument("workload", nargs="*", help=f"of {', '.join(WORKLOADS)}; all where none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time of each run")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    return parser.parse_args()


def main() -> None:
    """Time both checkouts on the workloads that were asked for."""
    options = arguments()
    checkouts = {"before": options.checkout.resolve(), "now": HERE.parent}
    heading = head(options.seconds, options.rounds, {}) + "\nbefore is left of now; range: of the runs in turn"
    loops, rows = loops_per_ms(), list[list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.workload or WORKLOADS:
            setting = Setting(WORKLOADS[name].num_samples, loops, str(Path(folder, "photos")))
            if name == "jpeg":
                write_photos(Path(setting.photos), setting.num_samples)
            for workers in WORKLOADS[name].compiled:
                found: Results = {"before": [], "now": []}
                for turn in range(options.rounds):
                    for which in (("before", "now"), ("now", "before"))[turn % 2]:
                        found[which].append(one_run(checkouts[which], name, workers, setting, options.seconds))
                rows.append(compared(name, workers, found))
                text = text_of(heading, rows)
                print("  ".join(rows[-1]), file=sys.stderr, flush=True)
                if options.out:
                    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
