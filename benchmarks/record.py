"""Add a figure to a history: `record("startup", "import flatout", 14.4, low=12.8, high=15.3, n=15, unit="ms")`.

One row a figure, in benchmarks/history/NAME.jsonl, in the order in which they were measured. What is not known is null.
`scripts/benchmarks-page` writes docs/benchmarks.md from them.
"""

import datetime
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flatout.machine import processor_name

HERE = Path(__file__).resolve().parent
HISTORY = HERE / "history"
PACKAGES = ("torch", "numpy", "torchvision")


def record(
    name: str,
    metric: str,
    value: float,
    *,
    low: float | None = None,
    high: float | None = None,
    n: int | None = None,
    n_of: str = "",
    unit: str = "",
    note: str = "",
) -> None:
    """Append a row with today's date, the commit, the machine and the versions."""
    row = {
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": _machine(),
        "versions": _versions(),
        "n": n,
        "n_of": n_of,
        "metric": metric,
        "value": _rounded(value),
        "low": _rounded(low),
        "high": _rounded(high),
        "unit": unit,
        "note": note,
    }
    HISTORY.mkdir(exist_ok=True)
    with (HISTORY / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _rounded(value: float | None) -> float | None:
    """Return six digits: more are noise."""
    return None if value is None else float(f"{value:.6g}")


def _commit() -> str | None:
    words = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _machine() -> str:
    """Return cores, processor and GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ", ".join([f"{cores} cores", processor_name(), *_gpu()])


def _gpu() -> list[str]:
    try:
        import torch
    except ImportError:
        return []
    return [torch.cuda.get_device_name()] if torch.cuda.is_available() else []


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found
