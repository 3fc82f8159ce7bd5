"""How much of what a person's repair gives, flatout delivers: whole trainings plain, under the recipe, and repaired.

Each flawed script is tuned untouched. Then it is trained from start to end as it is, under `flatout run`, and with its
twin's text, in turns. Delivered is the logarithm of what came under the recipe by that of what the twin gives, at most
1: what is given beyond the twin makes up for nothing. A script that keeps nothing delivers 0. Left out, and named, are
scripts whose twin is another training (`semantic` in truth.toml) or gains less than 1.1x in these trainings.
Planted scripts are trained for as many epochs as take about half a minute, those of a set as they are written.

Raw results are stored in `--out` as they are obtained; an interrupted run goes on where it stopped.

    python benchmarks/delivered.py --quick
    python benchmarks/delivered.py --set 2 --rounds 1
    python benchmarks/delivered.py --only char_lm --rounds 3
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import planted
from planted_suite import SUITE, Script, read_truth, write_texts
from record import record

from flatout.engine.recipe import RECIPE_FILE, read_recipe

SETS = Path(__file__).resolve().parent / "unseen"
TRAINED_S = 30.0  # about what a plain training of a planted script takes
FEWEST_EPOCHS, MOST_EPOCHS = 2, 400
LIMIT_S = 400
LEAST_GAIN = 1.1  # of a twin that counts
QUICK_OF_SET = 4  # every so many scripts of a set are a quick run
NOTHING, MOST_OF_IT = 0.1, 0.8
SIDES = ("plain", "run", "twin")


@dataclass(frozen=True)
class Result:
    """What became of one script: fixes kept, what was expected of the whole training, and trainings in seconds."""

    digest: str
    kept: tuple[str, ...]
    expected: float | None
    tune_s: float
    seconds: dict[str, list[float]]
    trouble: str = ""

    def gain(self, side: str) -> float | None:
        """Return how much faster the trainings of a side were than plain ones."""
        if not self.seconds.get(side) or not self.seconds.get("plain"):
            return None
        return statistics.median(self.seconds["plain"]) / statistics.median(self.seconds[side])

    @property
    def delivered(self) -> float | None:
        """Return the share of the twin's gain, in logarithms; None where the twin gains too little, or failed."""
        twin = self.gain("twin")
        if twin is None or twin < LEAST_GAIN:
            return None
        return min(1.0, math.log(self.gain("run") or 1.0) / math.log(twin))


def tuned(script: Script, folder: Path, budget: str) -> tuple[bool, tuple[str, ...], float | None, float]:
    """Tune the script in `folder`; return whether there is a recipe, what it keeps and expects, and the seconds."""
    words = [sys.executable, "-m", "flatout", "tune", "--budget", budget, *script.command(folder)]
    begin = time.monotonic()
    subprocess.run(words, cwd=folder, env=planted.environment_for(folder), capture_output=True, check=False)
    spent_s = time.monotonic() - begin
    if not (folder / RECIPE_FILE).exists():
        return False, (), None, spent_s
    recipe = read_recipe(folder / RECIPE_FILE)
    whole = recipe.whole
    expected = whole.speedup(whole.epochs) if whole is not None and whole.epochs else None
    return True, tuple(kept.selection.label for kept in recipe.fixes), expected, spent_s


def trained_s(words: Sequence[str], folder: Path) -> float:
    """Train once from start to end; return the seconds. Raises `subprocess.SubprocessError` where that fails."""
    begin = time.monotonic()
    setting = {"cwd": folder, "env": planted.environment_for(folder), "timeout": LIMIT_S}
    subprocess.run(words, capture_output=True, check=True, **setting)
    return time.monotonic() - begin


def length(script: Script, folder: Path) -> list[str]:
    """Return the arguments that make a planted script train for about `TRAINED_S`; a set's are as they are written."""
    if script.suite != SUITE:
        return []
    words = [sys.executable, *script.command(folder), "--epochs"]
    one_s, three_s = (trained_s([*words, str(number)], folder) for number in (1, 3))
    each_s = max(1e-3, (three_s - one_s) / 2)
    fits = round((TRAINED_S - one_s) / each_s) + 1
    return ["--epochs", str(max(FEWEST_EPOCHS, min(MOST_EPOCHS, fits)))]


def measure(script: Script, budget: str, rounds: int) -> Result:
    """Tune one script, and train it each way in turns."""
    with tempfile.TemporaryDirectory(prefix="delivered-") as name:
        flawed, twin = Path(name) / "flawed", Path(name) / "twin"
        write_texts(script.texts(script.home), flawed)
        write_texts(script.twin(), twin)
        there, kept, expected, tune_s = tuned(script, flawed, budget)
        seconds: dict[str, list[float]] = {side: [] for side in SIDES if side != "run" or there}
        trouble = ""
        try:
            arguments = length(script, flawed)
            words = {
                "plain": ([sys.executable, *script.command(flawed), *arguments], flawed),
                "run": ([sys.executable, "-m", "flatout", "run", *script.command(flawed), *arguments], flawed),
                "twin": ([sys.executable, *script.command(twin), *arguments], twin),
            }
            for number in range(rounds):
                for side in list(seconds)[:: -1 if number % 2 else 1]:
                    seconds[side].append(trained_s(*words[side]))
        except subprocess.SubprocessError as failure:
            trouble = f"{failure} {(getattr(failure, 'stderr', b'') or b'').decode()[-400:]}"
        return Result(script.digest(), kept, expected, tune_s, seconds, trouble)


def chosen(options: argparse.Namespace) -> list[Script]:
    """Return the scripts that were asked for: flawed ones of one process."""
    scripts = read_truth(SUITE if options.set is None else SETS / f"set_{options.set}")
    scripts = [each for each in scripts if each.kind == "flawed" and each.ranks == 1]
    if options.only:
        return [each for each in scripts if each.name in options.only]
    if not options.quick:
        return scripts
    return [each for each in scripts if each.quick] if options.set is None else scripts[::QUICK_OF_SET]


def row(script: Script, result: Result) -> str:
    """Return the line of one script."""
    cells = [f"{side} {planted.fmt(result.gain(side))}" for side in ("run", "twin")]
    cells += [f"expected {planted.fmt(result.expected)}", f"delivered {planted.fmt(result.delivered)}"]
    return f"{script.name:<24} {'  '.join(cells)}  {', '.join(result.kept) or 'nothing kept'} {result.trouble[:200]}"


def figures(shares: Sequence[float]) -> dict[str, float]:
    """Return the figures that have goals."""
    return {
        "delivered of the twin's gain, mean": statistics.mean(shares),
        f"scripts that got {MOST_OF_IT} of it or more": statistics.mean(share >= MOST_OF_IT for share in shares),
        f"scripts that got less than {NOTHING} of it": statistics.mean(share < NOTHING for share in shares),
    }


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="some scripts of each kind")
    parser.add_argument("--set", type=int, metavar="N", help="scripts of the unseen set N")
    parser.add_argument("--only", action="append", metavar="NAME", help="this script; may be repeated")
    parser.add_argument("--rounds", type=int, default=1, help="trainings each way")
    parser.add_argument("--budget", default="4m", help="of a tune")
    parser.add_argument("--out", type=Path, help="raw results, resumed from; delivered-SUITE.json without it")
    parser.add_argument("--record", metavar="NOTE", help="add the figures to the history, with this note")
    return parser.parse_args()


def main() -> None:
    """Print a line for each script, and the shares."""
    options = parse_args()
    out = options.out or Path(f"delivered-{options.set or 'planted'}.json")
    stored = json.loads(out.read_text())["results"] if out.exists() else {}
    planted.say(f"{planted.machine()}, torch {version('torch')}, {options.rounds} trainings each way")
    shares, left = [], []
    for script in chosen(options):
        if script.semantic:
            left.append(f"{script.name} (its twin is another training)")
            continue
        if stored.get(script.name, {}).get("digest") != script.digest():
            stored[script.name] = asdict(measure(script, options.budget, options.rounds))
            planted.store(out, stored)
        result = Result(**{**stored[script.name], "kept": tuple(stored[script.name]["kept"])})
        planted.say(row(script, result))
        share = result.delivered
        if share is None:
            left.append(f"{script.name} ({result.trouble[:60] or 'its twin gains less than 1.1x here'})")
        else:
            shares.append(share)
    planted.say("", f"left out: {', '.join(left) or 'none'}")
    subject = "planted" if options.set is None else f"set {options.set}"
    for metric, value in figures(shares).items() if shares else ():
        planted.say(f"{metric:<48} {value:.2f} (n={len(shares)})")
        if options.record is not None:
            record("delivered", f"{subject}: {metric}", value, n=len(shares), n_of="scripts", note=options.record)


if __name__ == "__main__":
    main()
