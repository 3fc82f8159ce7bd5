"""What a recipe is expected to give a whole training, against what it gives: from start to end, plain and under it.

Planted scripts are tuned untouched. Each is then trained for as many epochs as take about half a minute, plain and
under its recipe in turns; both are timed from the start of the command to its end, start-up and validation with it.
With `--set N` it takes the scripts of `unseen/set_N`, which are trained as they are written.

    python benchmarks/whole_training.py --quick
    python benchmarks/whole_training.py --set 1 --quick
    python benchmarks/whole_training.py --only char_lm --rounds 3
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from planted_suite import SUITE, Script, read_truth
from record import record

from flatout.engine.recipe import RECIPE_FILE, read_recipe
from flatout.machine import processor_name
from flatout.schema.recipe import Recipe

TRAINED_S = 30.0  # about what a plain training takes
FEWEST_EPOCHS = 2
SETS = Path(__file__).resolve().parent / "unseen"
QUICK_OF_SET = 4  # every so many scripts of an unseen set are a quick run
WITHIN, OVER = 0.15, 1.15
SLOWER = 0.97  # of a training that is no slower beyond noise


@dataclass(frozen=True)
class Row:
    """One script: fixes kept, epochs trained, the gain that was expected, and whole trainings in seconds."""

    name: str
    kept: tuple[str, ...]
    epochs: int
    expected: float
    step: float
    plain_s: tuple[float, ...]
    tuned_s: tuple[float, ...]

    @property
    def came(self) -> float:
        """Return how much faster the trainings were."""
        return statistics.median(self.plain_s) / statistics.median(self.tuned_s)


def tuned(script: Script, folder: Path, budget: str) -> Recipe | None:
    """Tune a copy of the script in `folder`; return the recipe, None where nothing was kept."""
    words = [sys.executable, "-m", "flatout", "tune", "--budget", budget, "--json", "report.json"]
    subprocess.run([*words, *script.command(folder)], cwd=folder, capture_output=True, check=False)
    recipe = folder / RECIPE_FILE
    return read_recipe(recipe) if recipe.exists() else None


def trained_s(command: list[str], folder: Path) -> float:
    """Train once from start to end; return the seconds.

    Raises:
        SystemExit: the training failed.
    """
    begin = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return time.monotonic() - begin


def num_epochs(recipe: Recipe) -> int:
    """Return how many epochs take about `TRAINED_S` as the script is."""
    whole = recipe.whole
    assert whole is not None
    each_s = whole.plain.later_epoch_s + whole.plain.between_s
    return max(FEWEST_EPOCHS, round((TRAINED_S - whole.plain.startup_s) / max(each_s, 1e-3)))


def measure(script: Script, budget: str, rounds: int) -> Row | str:
    """Return the row of one script, or in words why it has none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in script.files(script.home):
            shutil.copy(path, folder / path.name)
        recipe = tuned(script, folder, budget)
        if recipe is None:
            return "nothing kept"
        as_written = script.suite != SUITE
        if recipe.whole is None or (as_written and not recipe.whole.epochs):
            return "the length of the training is not known"
        epochs = recipe.whole.epochs if as_written else num_epochs(recipe)
        words = script.command(folder)
        if not as_written:
            words += ["--epochs", str(epochs)]
        commands = ([sys.executable, *words], [sys.executable, "-m", "flatout", "run", *words])
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                seconds[side].append(trained_s(commands[side], folder))
        return Row(
            name=script.name,
            kept=tuple(kept.selection.label for kept in recipe.fixes),
            epochs=epochs,
            expected=recipe.whole.speedup(epochs),
            step=recipe.proof.speedup,
            plain_s=tuple(seconds[0]),
            tuned_s=tuple(seconds[1]),
        )


def summary(rows: list[Row]) -> dict[str, float]:
    """Return the shares that have goals."""
    ratios = [row.expected / row.came for row in rows]
    return {
        "expected within 15% of what came": sum(abs(ratio - 1) <= WITHIN for ratio in ratios) / len(rows),
        "expected more than 1.15 times what came": sum(ratio > OVER for ratio in ratios) / len(rows),
        "whole trainings that were slower": sum(row.came < SLOWER for row in rows) / len(rows),
        "error of the expected gain, median": statistics.median(abs(ratio - 1) for ratio in ratios),
    }


def chosen(options: argparse.Namespace) -> list[Script]:
    """Return the scripts that were asked for: flawed ones of one process and one file."""
    suite = SUITE if options.set is None else SETS / f"set_{options.set}"
    scripts = [each for each in read_truth(suite) if each.kind == "flawed" and each.ranks == 1 and not each.package]
    if options.only:
        return [each for each in scripts if each.name in options.only]
    if not options.quick:
        return scripts
    return [each for each in scripts if each.quick] if options.set is None else scripts[::QUICK_OF_SET]


def main() -> None:
    """Print a line for each script, and the shares; the scripts that kept nothing are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="eleven scripts, once each way")
    parser.add_argument("--set", type=int, metavar="N", help="scripts of the unseen set N")
    parser.add_argument("--only", action="append", help="this script")
    parser.add_argument("--rounds", type=int, default=0, help="trainings each way")
    parser.add_argument("--budget", default="2m", help="of a tune")
    parser.add_argument("--record", action="store_true", help="add the figures to the history")
    options = parser.parse_args()
    scripts = chosen(options)
    rounds = options.rounds or (1 if options.quick else 3)
    print(f"{processor_name()}, {os.cpu_count()} CPUs, torch {version('torch')}, {rounds} trainings each way")
    rows = []
    for script in scripts:
        found = measure(script, options.budget, rounds)
        if isinstance(found, str):
            print(f"{script.name:24s} {found}", flush=True)
            continue
        rows.append(found)
        plain_s, tuned_s = statistics.median(found.plain_s), statistics.median(found.tuned_s)
        print(
            f"{found.name:24s} expected {found.expected:5.2f}x  came {found.came:5.2f}x  ({plain_s:.1f} s, "
            f"{tuned_s:.1f} s, {found.epochs} epochs; a step {found.step:.2f}x)  {', '.join(found.kept)}",
            flush=True,
        )
    if not rows:
        return
    for metric, value in summary(rows).items():
        print(f"{metric}: {value:.2f} (n={len(rows)} scripts)")
        if options.record:
            record(
                "whole_training",
                metric if options.set is None else f"set {options.set}: {metric}",
                value,
                n=len(rows),
                n_of="scripts",
                note=json.dumps(sorted(r.name for r in rows)),
            )


if __name__ == "__main__":
    main()
