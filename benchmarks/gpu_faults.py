"""What the findings of scripts with one fault promise on a CUDA device, and what repairing them brings.

Each script of tests/gpu/one_fault that can repair itself is diagnosed as it is; then it trains as it is and repaired,
in turn, each in a process of its own (cuDNN keeps what it chose for as long as the process lives), and the time of its
steps is taken from one wait for the device to the next.

    python benchmarks/gpu_faults.py [SCRIPT ...] [--rounds N] [--out FILE] [--recordings FOLDER]
"""

import argparse
import importlib.util
import inspect
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from trainings import tell

SCRIPTS = Path(__file__).parents[1] / "tests/gpu/one_fault"
EXPECTED = {
    "unaligned_product": "CO017",
    "unsearched_convolution": "CO015",
    "search_for_each_shape": "CO016",
    "small_batch": "ME005",
    "float_transfer": "TR003",
    "constant_transfer": "TR004",
    "outputs_copied_back": "TR005",
    "explicit_synchronize": "SY002",
}
FIRST, STEPS = 30, 130  # what is timed lies between them


def step_ms(main, repaired):
    """Return the milliseconds of a step, from one wait for the device to the next."""
    count, stamps = 0, []

    def stepped(*_):
        nonlocal count
        count += 1
        if count in (FIRST, STEPS):
            torch.cuda.synchronize()
            stamps.append(time.perf_counter())

    hook = register_optimizer_step_post_hook(stepped)
    try:
        main(repaired=repaired, steps=STEPS)
    finally:
        hook.remove()
    return (stamps[1] - stamps[0]) / (STEPS - FIRST) * 1e3


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def diagnosed(path, recordings):
    """Return what is found, the first first; keep the recording where a folder is given."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder, "train.py"))
        command = [sys.executable, "-m", "flatout", "diagnose", "--out", "out", "--json", "-", "train.py"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)
        if said.returncode:
            return [], said.stderr.strip().splitlines()[-1:]
        if recordings:
            shutil.copy(next(Path(folder).glob("out/*/*/run.jsonl")), recordings / f"{path.stem}.jsonl")
        return json.loads(said.stdout)["findings"], []


def timed(name, *, repaired):
    """Return what `step_ms` says in a process of its own."""
    command = [sys.executable, __file__, name, "--time", "repaired" if repaired else "plain"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def row(name, rounds, recordings):
    """Return one line: the code, what it promised, what repairing brought, what was named first."""
    path = SCRIPTS / f"{name}.py"
    code, (found, failed) = EXPECTED[name], diagnosed(path, recordings)
    if failed:
        return f"{name:24} {code} failed: {failed[0]}"
    worth = getattr(loaded(path), "WORTH", 1)
    pairs = [(timed(name, repaired=False), timed(name, repaired=True) / worth) for _ in range(rounds)]
    gains = [plain / repaired for plain, repaired in pairs]
    promised = next((each["max_speedup"] for each in found if each["code"] == code), None)
    told = "not found" if promised is None else f"promised {promised:.2f}"
    plain, repaired = (statistics.median(column) for column in zip(*pairs, strict=True))
    codes = " ".join(each["code"] for each in found)
    return (
        f"{name:24} {code} {told} gain {statistics.median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f}, "
        f"n={rounds} rounds; {plain:.3f} ms a step, repaired {repaired:.3f}) found: {codes}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scripts", nargs="*", choices=[[], *EXPECTED], help="all where none is named")
    parser.add_argument(
        "--time", choices=["plain", "repaired"], help="only print the milliseconds of one script's step"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recordings", type=Path, help="a folder to keep the recordings in")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device on this machine.")
    if options.time:
        print(step_ms(loaded(SCRIPTS / f"{options.scripts[0]}.py").main, options.time == "repaired"))
        return
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"]
    for name in options.scripts or EXPECTED:
        assert "repaired" in inspect.signature(loaded(SCRIPTS / f"{name}.py").main).parameters
        lines.append(row(name, options.rounds, options.recordings))
        print(lines[-1], flush=True)
    tell(lines, options.out)


if __name__ == "__main__":
    main()
