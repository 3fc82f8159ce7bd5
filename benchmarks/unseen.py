"""Score `flatout diagnose` on sets of scripts that were scored before any rule saw them.

A set, `unseen/set_N`, is written by people who have read none of the rules: flawed scripts, each with its twin, and
healthy ones. Its first score stays in the history; a later one (`--mended`) stands beside it. What counts
is what a person would ask: is the phase right, is one of the first two lines that are named the cause, is anything said
at all, and does the mend give what was promised. Codes are not judged: whoever wrote the scripts does not know them.

Scripts and twins are run as those of `planted.py` are.

    python benchmarks/unseen.py 1
    python benchmarks/unseen.py 1 --only NAME --again NAME
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import planted
from planted_suite import Script, read_truth
from record import record

SETS = Path(__file__).resolve().parent / "unseen"
SAID_SHARE = 0.10  # of a finding that counts


def judge(script: Script, result: dict) -> dict:
    """Return the verdict on one stored result: `planted.score`, and whether nothing was found."""
    judged = planted.score(script, result)
    findings = result["diagnosis"].get("findings") or []
    judged["silent"] = not any(found["share"] >= SAID_SHARE for found in findings if not found["code"].startswith("MS"))
    return judged


def row(script: Script, judged: dict) -> str:
    """Return the table row of one script."""
    if script.kind == "healthy":
        return planted.row(script, judged)
    keys = ("phase", "line", "promised", "gain", "error")
    cells = [f"{key} {planted.fmt(judged[key]):<4}" for key in keys]
    phases = "+".join(script.causes[0].phases)
    return f"{script.name:<24} {phases:<18}  {'  '.join(cells)} first: {judged['first'][:48]}"


def share(verdicts: Iterable[bool]) -> float:
    """Return how many percent of the verdicts are true."""
    return 100 * statistics.mean(map(float, verdicts))


def figures(judged: dict[Script, dict]) -> dict[str, tuple[float, int, str]]:
    """Return value, number of scripts and unit of each figure of a set."""
    flawed = [verdict for script, verdict in judged.items() if script.kind == "flawed"]
    alarms = [verdict["alarms"] for script, verdict in judged.items() if script.kind == "healthy"]
    known = [alarm for alarm in alarms if alarm is not None]
    lined = [verdict["line"] for verdict in flawed if verdict["line"] is not None]
    errors = [verdict["error"] for verdict in flawed if verdict["error"] is not None]
    found = {
        "right phase first": (share(verdict["phase"] for verdict in flawed), len(flawed), "%"),
        "right line within the first two findings": (share(lined), len(lined), "%"),
        "nothing found": (share(verdict["silent"] for verdict in flawed), len(flawed), "%"),
        "healthy scripts with a finding of 10% or more": (sum(map(bool, known)), len(known), "of n"),
    }
    if len(errors) > 1:
        tenths = statistics.quantiles(errors, n=10, method="inclusive")
        found["error of the promise, median"] = (100 * statistics.median(errors), len(errors), "%")
        found["error of the promise, 90th percentile"] = (100 * tenths[-1], len(errors), "%")
    return found


def measured(script: Script, known: dict, recordings: Path, options: argparse.Namespace) -> dict:
    """Return the stored result of a script, with what was missing."""
    digest = script.digest()
    if known.get("digest") != digest:
        known = {"digest": digest, "load": os.getloadavg()[0], "diagnosis": planted.diagnose(script, recordings)}
    elif script.name in options.again:
        known["diagnosis"] = planted.diagnose(script, recordings)
    before = {key: known.get("epochs_s", {}).get(key, []) for key in ("flawed", "repaired")}
    if script.kind == "flawed" and not (options.no_gains or planted.enough_pairs(before)):
        known["epochs_s"] = planted.measure_epochs(script, before)
    return known


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, help="of the set")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this script; may be repeated")
    parser.add_argument("--again", action="append", default=[], metavar="NAME", help="diagnose this script once more")
    parser.add_argument("--no-gains", action="store_true", help="leave gains that are not measured yet for later")
    parser.add_argument("--out", type=Path, help="raw results, resumed from; unseen-N.json without it")
    parser.add_argument("--mended", action="store_true", help="rules have seen the set: it is no first score any more")
    parser.add_argument("--record", metavar="NOTE", help="add the figures to the history, with this note")
    return parser.parse_args()


def main() -> int:
    """Run what is not stored yet, print a row per script and the figures."""
    options = parse_args()
    scripts = read_truth(SETS / f"set_{options.number}")
    out = options.out or Path(f"unseen-{options.number}.json")
    results = json.loads(out.read_text())["results"] if out.exists() else {}
    recordings = out.absolute().with_suffix("")
    judged = {}
    for script in scripts:
        if script.name not in (options.only or [script.name]):
            continue
        results[script.name] = known = measured(script, results.get(script.name, {}), recordings, options)
        planted.store(out, results)
        known["diagnosis"] = planted.findings_today(recordings / script.name, known["diagnosis"])
        judged[script] = judge(script, known)
        planted.say(row(script, judged[script]))
    planted.say("", "  ".join(f"{key} {value}" for key, value in planted.machine().items()))
    stage = "mended" if options.mended else "first score"
    for metric, (value, n, unit) in figures(judged).items():
        planted.say(f"{metric:<48} {value:.0f}{'%' if unit == '%' else ''} (n={n})")
        if options.record is not None:
            named = f"set {options.number}, {stage}: {metric}"
            record("unseen", named, value, n=n, n_of="scripts", unit=unit, note=options.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
