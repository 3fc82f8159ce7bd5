"""Whole tunes of scripts and with fixes that are made for a benchmark: what `power.py` and `false_wins.py` share.

The fixes reach flatout and the script through FLATOUT_EXTRA_FIXES, as a user's own would.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["SCRIPTS", "Tuned", "bounds", "tune", "write_project"]

SCRIPTS = {  # name: (hidden units, batch, loader workers, share of each step's work that is wasted on top)
    "short steps": (64, 64, 0, 0.3),
    "ordinary steps": (512, 128, 0, 0.3),
    "steps with a worker": (512, 128, 1, 0.3),
}
"""Ordinary trainings that waste a share of what each step took: a gain then stays the same on a busy machine."""

_WAITING = """
import time


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
"""

_SCRIPT = """
import time
import torch
import waiting
from torch.utils.data import DataLoader, TensorDataset

HIDDEN, BATCH, WORKERS, SHARE = {values}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(20_000, 64), torch.randint(0, 10, (20_000,)))
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    while True:
        start = time.perf_counter()
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            work_s = min(0.2, time.perf_counter() - start)
            waiting.spin(SHARE * work_s)
            start = time.perf_counter()


if __name__ == "__main__":
    main()
"""


@dataclass
class Tuned:
    """One tune: the fixes it kept, the verdict on every trial, how long it took."""

    kept: list[str]
    seconds: float
    verdicts: list[str] = field(default_factory=list)
    speedups: list[float] = field(default_factory=list)  # of every trial with a comparison
    error: str = ""


def write_project(folder: Path, script: str, fixes: str, wasted: float | None = None) -> dict[str, str]:
    """Write one of `SCRIPTS` and a module of fixes into `folder`; return the environment to tune it in.

    `wasted`: another share of each step's work in place of the script's.
    """
    *values, share = SCRIPTS[script]
    (folder / "train.py").write_text(_SCRIPT.format(values=(*values, share if wasted is None else wasted)))
    (folder / "waiting.py").write_text(_WAITING)
    (folder / "made_fixes.py").write_text(fixes)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return os.environ | {"FLATOUT_EXTRA_FIXES": "made_fixes", "PYTHONPATH": path}


def tune(script: str, fixes: str, only: list[str], budget_s: float) -> Tuned:
    """Tune one of `SCRIPTS` with the fixes that the module text `fixes` defines, trying those in `only`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = write_project(folder, script, fixes)
        start = time.monotonic()
        command = [sys.executable, "-m", "flatout", "tune", "--budget", f"{budget_s:.0f}s", "--json", "report.json"]
        done = subprocess.run(
            [*command, *(word for fix in only for word in ("--only", fix)), "train.py"],
            cwd=folder, capture_output=True, text=True,
            env=environment,
        )  # fmt: skip
        seconds = time.monotonic() - start
        if done.returncode:
            return Tuned([], seconds, error=(done.stderr.strip().splitlines() or ["no message"])[-1])
        trials = json.loads((folder / "report.json").read_text())["trials"]
        recipe = folder / "flatout.toml"
        body = tomllib.loads(recipe.read_text()) if recipe.exists() else {}
        return Tuned(
            kept=[fix["name"] for fix in body.get("fix", [])],
            seconds=seconds,
            verdicts=[trial["verdict"] for trial in trials],
            speedups=[trial["speedup"] for trial in trials if trial.get("num_pairs")],
        )


def bounds(hits: int, number: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson, Biometrika 26 (1934))."""
    beyond = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _solve(lambda share: 1 - _at_most(hits - 1, number, share), beyond)
    high = 1.0 if hits == number else 1 - _solve(lambda share: _at_most(hits, number, 1 - share), beyond)
    return low, high


def _at_most(hits: int, number: int, share: float) -> float:
    return sum(math.comb(number, each) * share**each * (1 - share) ** (number - each) for each in range(hits + 1))


def _solve(rising, wanted: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return low
