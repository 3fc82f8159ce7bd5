"""Hold what is recorded under a framework's loop against a plain loop of the same training, timed by hand.

The training waits for known times in its data set, its forward and its backward pass; the plain loop carries its own
stopwatch and runs without flatout. On two ranks the backward pass exchanges gradients and waits for the other rank:
what is recorded of them is held against the same loop on two ranks. Lightning, transformers and accelerate are
installed into `--folder` (an environment of its own that sees this one's torch); a framework that cannot be installed
is said and left out.

    python benchmarks/frameworks.py --quick
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from beside import install

from flatout.analysis.breakdown import account
from flatout.schema.codec import RUN_FILE, read_run

SCRIPTS = Path(__file__).resolve().parent / "frameworks"
PACKAGES = {name: name for name in ("lightning", "transformers", "accelerate")}
PHASES = ("input", "forward", "backward", "optimizer", "host")
GOAL_POINTS = 3.0
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
ALONE, IN_TWO = ("python", "plain.py"), (*TORCHRUN, "plain_torchrun.py")
CONTENDERS = {
    "plain loop": ("plain.py",),
    "lightning": ("with_lightning.py",),
    "transformers": ("with_transformers.py",),
    "accelerate": ("with_accelerate.py",),
    "torchrun, 2 ranks": ("--", *TORCHRUN, "with_torchrun.py"),
}


def of_suite(words: tuple[str, ...]) -> list[str]:
    """Return words of a command with the paths of its scripts."""
    return [str(SCRIPTS / word) if word.endswith(".py") else word for word in words]


def by_hand(words: tuple[str, ...], env: dict[str, str]) -> dict[str, float]:
    """Return the shares of a step that the plain loop's own stopwatch found."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "stopwatch.json"
        done = subprocess.run(of_suite(words), env={**env, "STOPWATCH": str(file)}, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{words[-1]} ended with {done.returncode}:\n{done.stderr}")
        watch = json.loads(file.read_text())
    whole = sum(watch.values())
    return {phase: watch[phase] / whole for phase in PHASES}


def recorded(python: Path, words: tuple[str, ...], env: dict[str, str]) -> tuple[list[int], dict[str, float]]:
    """Return the steps of each rank, and the shares of a step of the first one."""
    with tempfile.TemporaryDirectory() as name:
        command = [str(python), "-m", "flatout", "diagnose", "--whole", "--out", name, *of_suite(words)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=name)
        files = list(Path(name).glob(f"*/*/{RUN_FILE}"))
        if done.returncode or not files:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no recording"])[-1])
        run = read_run(files[0])
    breakdown = account(run)
    shares = {part.phase.value: part.share for part in breakdown.phases}
    return [rank.num_steps for rank in run.ranks] or [run.num_steps], shares


def main() -> int:
    """Print a row for each framework and whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 steps in place of 150")
    parser.add_argument("--folder", type=Path, help="where the frameworks are installed; kept")
    options = parser.parse_args()
    steps = 60 if options.quick else 150
    with tempfile.TemporaryDirectory() as name:
        python, failed = install((options.folder or Path(name)).absolute(), PACKAGES)
        path = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        env = {**os.environ, "PATH": path, "TRAINED_STEPS": str(steps), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        truths = {words: by_hand(words, env) for words in (ALONE, IN_TWO)}
        for words, truth in truths.items():
            parts = "  ".join(f"{phase} {share:.1%}" for phase, share in truth.items())
            print(f"by hand, {words[-1]}: {parts}")
        print(f"goal: {steps} steps exactly, shares within {GOAL_POINTS:.0f} points")
        good = True
        for contender, words in CONTENDERS.items():
            if contender in failed:
                print(f"{contender:<18} not installed: {failed[contender]}")
                continue
            try:
                counts, shares = recorded(python, words, env)
            except RuntimeError as error:
                print(f"{contender:<18} FAILED: {error}")
                good = False
                continue
            truth = truths[IN_TWO if "torchrun" in words else ALONE]
            off = {phase: 100 * (shares.get(phase, 0.0) - truth[phase]) for phase in PHASES}
            worst = max(off, key=lambda phase: abs(off[phase]))
            met = set(counts) == {steps} and abs(off[worst]) <= GOAL_POINTS
            good = good and met
            parts = "  ".join(f"{phase} {shares.get(phase, 0.0):.1%}" for phase in PHASES)
            verdict = f"worst {worst} {off[worst]:+.1f}  {'met' if met else 'MISSED'}"
            print(f"{contender:<18} steps {counts}  {parts}  {verdict}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
