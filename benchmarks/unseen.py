"""Score `flatout diagnose` on sets of scripts that were scored before any rule saw them.

A set, `unseen/set_N`, is written by people who have read none of the rules: flawed scripts, each with its twin, and
healthy ones. Its first score stays in the history; a later one (`--mended`) stands beside it. What counts
is what a person would ask: is the phase right, is one of the first two lines that are named the cause, is anything said
at all, and does the mend give what was promised. Codes are not judged: whoever wrote the scripts does not know them.

Scripts and twins run with the environment of `planted.py`, as they are written. The gain of a twin is that of the same
number of optimizer steps, from the end of the first one on: of those that the flawed script takes in 15 s, or of the
whole training where the flaw lies between steps. Pairs run in turns, each first in every other one.

    python benchmarks/unseen.py 1
    python benchmarks/unseen.py 1 --only NAME --again NAME
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import planted
from planted_suite import Script, read_truth, write_texts
from record import record

SETS = Path(__file__).resolve().parent / "unseen"
SAID_SHARE = 0.10  # of a finding that counts
CUT_S = 15.0
WHOLE_S = 300.0
IN_STEPS = {"input", "copy", "forward", "backward", "optimizer", "host"}
PAIRS = 2
CLOCK = """
import os
file = os.environ.pop("UNSEEN_CLOCK", None)
if file:
    import atexit, json, time
    from torch.optim.optimizer import register_optimizer_step_post_hook
    cut_s, most = float(os.environ["UNSEEN_SECONDS"]), int(os.environ["UNSEEN_STEPS"])
    steps = []

    def write():
        with open(file, "w") as out:
            json.dump([len(steps), time.perf_counter() - steps[0]], out)

    def stepped(*_):
        steps.append(time.perf_counter())
        if len(steps) >= most or steps[-1] - steps[0] > cut_s:
            write()
            os._exit(0)

    register_optimizer_step_post_hook(stepped)
    atexit.register(write)
"""


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


def steps_and_seconds(script: Script, folder: Path, *, cut_s: float, most: int) -> tuple[int, float]:
    """Train until `most` optimizer steps are done or `cut_s` are over since the first; return their number and seconds.

    Raises `subprocess.SubprocessError` where that fails.
    """
    with tempfile.TemporaryDirectory(prefix="unseen-") as tmp, tempfile.TemporaryDirectory() as beside:
        (Path(beside) / "sitecustomize.py").write_text(CLOCK)
        env = planted.environment_for(folder)
        env |= {"PYTHONPATH": os.pathsep.join([beside, env["PYTHONPATH"]]), "UNSEEN_CLOCK": f"{beside}/clock"}
        env |= {"UNSEEN_SECONDS": str(cut_s), "UNSEEN_STEPS": str(most)}
        words = [sys.executable, *script.command(folder)]
        setting = {"cwd": tmp, "env": env, "timeout": WHOLE_S, "start_new_session": True}
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, **setting)
        steps, seconds = json.loads((Path(beside) / "clock").read_text())
        return steps, seconds


def measure_trainings(script: Script, before: dict) -> dict:
    """Return the seconds of the flawed script and of its twin, pair after pair, those of `before` first.

    Or what went wrong.
    """
    times = {name: list(before.get(name, ())) for name in ("flawed", "repaired")}
    cut_s = CUT_S if set(script.causes[0].phases[:1]) <= IN_STEPS else WHOLE_S
    with tempfile.TemporaryDirectory(prefix="unseen-twin-") as twin:
        write_texts(script.twin(), Path(twin))
        folders = {"flawed": script.home, "repaired": Path(twin)}
        try:
            most, _ = steps_and_seconds(script, script.home, cut_s=cut_s, most=sys.maxsize)
            for pair in range(len(times["flawed"]), PAIRS):
                for name in list(folders)[:: -1 if pair % 2 else 1]:
                    steps, seconds = steps_and_seconds(script, folders[name], cut_s=WHOLE_S, most=most)
                    if steps < most and cut_s < WHOLE_S:
                        return {"error": f"the {name} script ends after {steps} of {most} steps"}
                    times[name].append(seconds)
        except (subprocess.SubprocessError, FileNotFoundError) as failure:
            return {"error": f"plain run: {failure}", "tail": (getattr(failure, "stderr", b"") or b"").decode()[-800:]}
    return times


def measured(script: Script, known: dict, recordings: Path, options: argparse.Namespace) -> dict:
    """Return the stored result of a script, with what was missing."""
    digest = script.digest()
    if known.get("digest") != digest:
        known = {"digest": digest, "load": os.getloadavg()[0], "diagnosis": planted.diagnose(script, recordings)}
    elif script.name in options.again:
        known["diagnosis"] = planted.diagnose(script, recordings)
    before = known.get("epochs_s", {})
    if script.kind == "flawed" and not options.no_gains and len(before.get("flawed", ())) < PAIRS:
        known["epochs_s"] = measure_trainings(script, before)
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
