"""Edits that a person wrote, given to `flatout tune --only DIFF`: 33 right ones and 10 that are subtly wrong.

The right ones are repairs of planted scripts, every second of those that leave the training as it is, to the last bit,
up to rounding or in fewer bits (`equal` in truth.toml, told by a reader of the patches). Each is tried alone; what the
trial says of its results and its speed is held against what it is: an edit of that class or a stricter one, and the
gain of the repaired twin, whose epochs are timed in turns with the script's. The wrong ones are repairs of other
scripts with one slip (`sabotage/wrong_repairs.py`): the trial has to name them.

Raw results are stored in `--out` as they are obtained; an interrupted run goes on where it stopped.

    python benchmarks/given_edits.py [--quick] [--only SCRIPT] [--record NOTE]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import planted
from planted_suite import SUITE, Script, read_truth, write_texts
from planted_twins import repair_by
from record import record

sys.path.insert(0, str(Path(__file__).resolve().parent / "sabotage"))
from wrong_repairs import WRONG_REPAIRS, WrongRepair

EVERY = 2  # of the scripts with a repair that leaves the training as it is
QUICK = 4  # every so many of those
WITHIN = 0.10  # of the twin's gain
CLASSES = ("BITWISE", "ROUNDING", "PRECISION")


def tried(script: Script, diff: bytes, budget: str) -> dict:
    """Return what `flatout tune --only DIFF` says of an edit of a script, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="given-") as name:
        folder = Path(name)
        write_texts(script.texts(script.home), folder)
        (folder / "given.diff").write_bytes(diff)
        words = ["tune", "--budget", budget, "--only", "given.diff", "--json", "report.json", *script.command(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "flatout", *words],
            cwd=folder,
            env=planted.environment_for(folder),
            capture_output=True,
            text=True,
        )
        if not (folder / "report.json").exists():
            return {"error": (done.stderr or done.stdout).strip()[-400:]}
        trials = json.loads((folder / "report.json").read_text())["trials"]
    keys = ("verdict", "reason", "equivalence", "results_equal", "speedup", "low", "high", "num_pairs", "wall_s")
    return {key: trials[0][key] for key in keys} if trials else {"error": "no trial was made"}


def right(script: Script, budget: str) -> dict:
    """Return the trial of a script's own repair, and the gain of the repaired twin."""
    found = tried(script, script.repair.read_bytes(), budget)
    return {**found, "twin": planted.gain_of(planted.measure_epochs(script, {})), "wanted": script.equal.upper()}


def wrong(script: Script, slip: WrongRepair, budget: str) -> dict:
    """Return the trial of a repair with one slip."""
    twin = script.twin()
    there = [name for name, text in twin.items() if slip.old.encode() in text]
    assert len(there) == 1, f"{slip.script}: {slip.old!r} is in {there}"
    (name,) = there
    slipped = {**twin, name: twin[name].replace(slip.old.encode(), slip.new.encode())}
    return tried(script, repair_by(script, slipped), budget)


def line(name: str, found: dict) -> str:
    """Return the line of one edit."""
    if "error" in found:
        return f"{name:<42} {found['error']}"
    equal = {True: "equal", False: "not equal", None: "not judged"}[found["results_equal"]]
    speed = f"{planted.fmt(found['speedup'])} (n={found['num_pairs']})"
    twin = f"  twin {planted.fmt(found['twin'])}" if "twin" in found else ""
    return f"{name:<42} {found['equivalence']:<10} {equal:<10} {found['verdict']:<14} {speed}{twin}  {found['reason']}"


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every fourth of them")
    parser.add_argument("--only", action="append", default=[], metavar="SCRIPT", help="edits of this script")
    parser.add_argument("--budget", default="90s", help="of a tune")
    parser.add_argument("--out", type=Path, default=Path("given-edits.json"), help="raw results, resumed from")
    parser.add_argument("--record", metavar="NOTE", help="add the figures to the history, with this note")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> tuple[list[Script], list[WrongRepair]]:
    """Return the scripts whose own repair is tried, and the slips."""
    scripts = [each for each in read_truth(SUITE) if each.equal.upper() in CLASSES]
    repairs, slips = scripts[::EVERY], list(WRONG_REPAIRS)
    if options.only:
        return [s for s in scripts if s.name in options.only], [s for s in slips if s.script in options.only]
    return (repairs[::QUICK], slips[::QUICK]) if options.quick else (repairs, slips)


def main() -> int:
    """Print a line for each edit, and the figures."""
    options = parse_args()
    repairs, slips = chosen(options)
    by_name = {each.name: each for each in read_truth(SUITE)}
    stored = json.loads(options.out.read_text())["results"] if options.out.exists() else {}
    planted.say(f"{planted.machine()}, torch {version('torch')}")
    tasks = [(script.name, script.digest(), lambda script=script: right(script, options.budget)) for script in repairs]
    for slip in slips:
        script = by_name[slip.script]
        act = lambda script=script, slip=slip: wrong(script, slip, options.budget)  # noqa: E731
        tasks.append((slip.name, script.digest(), act))
    for name, digest, act in tasks:
        if stored.get(name, {}).get("digest") != digest:
            stored[name] = {**act(), "digest": digest}
            planted.store(options.out, stored)
        planted.say(line(name, stored[name]))
    return summary([stored[each.name] for each in repairs], [stored[each.name] for each in slips], options.record)


def of_its_class(found: dict) -> bool:
    """Return whether a right edit was judged equal by the class that it is of, or by a stricter one."""
    within = CLASSES[: CLASSES.index(found["wanted"]) + 1]
    return bool(found["results_equal"]) and found["equivalence"] in within


def summary(good: list[dict], bad: list[dict], note: str | None) -> int:
    """Print the figures that have goals; return the exit code, 1 where a wrong edit was not named."""
    judged = [each for each in good if each.get("results_equal") is not None]
    timed = [each for each in judged if each["results_equal"] and each.get("speedup") and each.get("twin")]
    errors = [abs(each["speedup"] / each["twin"] - 1) for each in timed]
    figures = {
        "right edits that are judged equal, by their class": [of_its_class(each) for each in judged],
        "right edits whose gain is within a tenth of the twin's": [error <= WITHIN for error in errors],
        "wrong edits that are not named": [each.get("results_equal") is not False for each in bad],
    }
    for metric, values in figures.items():
        planted.say(f"{metric:<56} {sum(values)} of {len(values)}")
        if note is not None:
            record("given_edits", metric, sum(values), n=len(values), n_of="edits", unit="of n", note=note)
    if errors:
        planted.say(f"{'error of the gain against the twin, median':<56} {statistics.median(errors):.0%}")
    return int(any(each.get("results_equal") is not False for each in bad))


if __name__ == "__main__":
    sys.exit(main())
