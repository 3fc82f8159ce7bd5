"""Score `flatout diagnose` on scripts whose flaws are known.

Each script of `planted/flawed/` has a twin without the flaw, which the patch of its name in `planted/repairs/` makes of
it; `planted/truth.toml` says what a right diagnosis is. Some have two flaws of different families, and their twins have
neither: then the speed-ups that the findings promise are taken together.
The gain of the repair is measured from plain runs, without flatout: flawed epoch time over repaired epoch time, of the
epochs after the first, the median of three pairs. The two of a pair run one after the other, each alone on the machine
as it is where it is diagnosed, and take turns in going first. (Side by side, a core for each, they share the last level
of the cache and the memory's bandwidth, which costs the one more than the other: denoiser_psnr gained 1.38 so, n=4, and
1.79 alone, n=6.) Where the largest gain is more than 1.35 times the smallest, three more pairs are measured.
Everything runs with one intra-op thread: with two, any other process on a machine of two cores makes OpenMP regions
wait, and steps up to 50 times as long.
`planted/healthy/` holds scripts on which nothing should be found.

Raw results are stored in `--out` as they are obtained, recordings beside it; an interrupted run goes on where it
stopped, and a script that has changed since is measured again. Scores are computed anew from the recordings each
time, with the rules of that day; `--again NAME` diagnoses a script once more. `--no-gains` takes a third of the time.

    python benchmarks/planted.py --quick
    python benchmarks/planted.py --only thumbnails --only char_lm
"""

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path

from planted_suite import SUITE, Cause, Script, read_truth, write_texts

from flatout.machine import processor_name

TRAINED_S = 2.0
PAIRS = 3
MORE_PAIRS, SCATTER = 6, 1.35  # where the largest gain of a pair is so many times the smallest
MOST_EPOCHS = 128
CLOCK = """
import os
ranks = int(os.environ.get("PLANTED_RANKS", "1"))
file = os.environ.pop("PLANTED_CLOCK", None) if ranks == 1 or os.environ.get("RANK") == "0" else None
if file:
    import atexit, json, time
    from torch.optim.optimizer import register_optimizer_step_post_hook
    begin, steps = time.perf_counter(), []
    register_optimizer_step_post_hook(lambda *_: steps.append(time.perf_counter()))
    atexit.register(lambda: json.dump([begin, steps, time.perf_counter()], open(file, "w")))
"""
DIAGNOSE_LIMIT_S = 240
TRAIN_LIMIT_S = 300
FALSE_ALARM_SHARE = 0.10
GOALS = {"phase": 0.95, "line": 0.92, "code": 0.90, "both": 0.90, "error": 0.10, "error_p90": 0.25, "findings": 2}


def environment_for(folder: Path) -> dict[str, str]:
    """Return the process environment in which packages of `folder` can be started with -m."""
    paths = [str(folder), os.environ.get("PYTHONPATH")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def diagnose(script: Script, recordings: Path) -> dict:
    """Run `flatout diagnose` in an empty folder and return its report, or what went wrong."""
    kept = recordings / script.name
    shutil.rmtree(kept, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="planted-") as tmp:
        report = Path(tmp) / "report.json"
        options = ["--json", str(report), "--out", str(kept)]
        launcher = ["--", sys.executable] if script.ranks > 1 else []
        command = [sys.executable, "-m", "flatout", "diagnose", *options, *launcher, *script.command(script.home)]
        setting = {"cwd": tmp, "env": environment_for(script.home), "timeout": DIAGNOSE_LIMIT_S}
        begin_s = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, **setting)
        except subprocess.TimeoutExpired:
            return {"error": f"diagnose took more than {DIAGNOSE_LIMIT_S} s"}
        wall_s = time.perf_counter() - begin_s
        if done.returncode or not report.exists():
            tail = (done.stderr or done.stdout).strip()[-800:]
            return {"error": f"diagnose left with exit code {done.returncode}", "tail": tail, "wall_s": wall_s}
        content = json.loads(report.read_text())
    return {key: content.get(key) for key in ("findings", "breakdown", "outside", "steps")} | {"wall_s": wall_s}


def clocked(script: Script, folder: Path, num_epochs: int) -> tuple[float, list[float], float]:
    """Return when a plain run began, ended each optimizer step, and ended."""
    with tempfile.TemporaryDirectory(prefix="planted-") as tmp, tempfile.TemporaryDirectory() as beside:
        (Path(beside) / "sitecustomize.py").write_text(CLOCK)
        command = [sys.executable, *script.command(folder), "--epochs", str(num_epochs)]
        env = environment_for(folder)
        env |= {"PYTHONPATH": os.pathsep.join([beside, env["PYTHONPATH"]]), "PLANTED_CLOCK": f"{beside}/clock"}
        env["PLANTED_RANKS"] = str(script.ranks)
        setting = {"cwd": tmp, "env": env, "timeout": TRAIN_LIMIT_S}
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, **setting)
        return json.loads((Path(beside) / "clock").read_text())


def later_epoch_s(script: Script, folder: Path, num_epochs: int) -> float:
    """Return the seconds of an epoch after the first: start-ups differ by more than a second.

    From the last optimizer step of the first epoch to the last of all; scripts that step by hand, or not equally often
    in each epoch, are run with one epoch, too, and the difference of the two runs is taken.
    """
    begin, steps, end = clocked(script, folder, 1 + num_epochs)
    if steps and len(steps) % (1 + num_epochs) == 0:
        return (steps[-1] - steps[len(steps) // (1 + num_epochs) - 1]) / num_epochs
    begin_one, _, end_one = clocked(script, folder, 1)
    return (end - begin - (end_one - begin_one)) / num_epochs


def num_epochs_for(script: Script, folder: Path) -> int:
    """Return after how many epochs a run has trained for about 2 s."""
    rough_s = max(0.02, later_epoch_s(script, folder, 2))
    return max(2, min(MOST_EPOCHS, round(TRAINED_S / rough_s)))


def measure_epochs(script: Script, before: dict) -> dict:
    """Return the epoch times in seconds of the flawed script and its twin, of pair after pair, those of `before` first.

    One at a time, and each first in every other pair.
    """
    with tempfile.TemporaryDirectory(prefix="planted-twin-") as folder:
        write_texts(script.twin(), Path(folder))
        return measure_pairs(script, {"flawed": script.home, "repaired": Path(folder)}, before)


def measure_pairs(script: Script, folders: dict[str, Path], before: dict) -> dict:
    """Return the epoch times of the script in each folder, by the names of the folders, or what went wrong."""
    times = {name: list(before.get(name, ())) for name in folders}
    try:
        numbers = {name: num_epochs_for(script, folder) for name, folder in folders.items()}
        while not enough_pairs(times):
            for pair in range(len(times["flawed"]), len(times["flawed"]) + PAIRS):
                for name in list(folders)[:: -1 if pair % 2 else 1]:
                    times[name].append(later_epoch_s(script, folders[name], numbers[name]))
        return times
    except subprocess.SubprocessError as failure:
        complete = min(map(len, times.values()))
        if complete >= PAIRS:
            return {name: found[:complete] for name, found in times.items()}
        return {"error": f"plain run: {failure}", "tail": (getattr(failure, "stderr", b"") or b"").decode()[-800:]}


def enough_pairs(epochs_s: dict) -> bool:
    """Return whether as many pairs were measured as their scatter asks for."""
    gains = [flawed_s / repaired_s for flawed_s, repaired_s in zip(*epochs_s.values(), strict=True) if repaired_s > 0]
    wanted = MORE_PAIRS if gains and max(gains) > SCATTER * min(gains) else PAIRS
    return len(epochs_s["flawed"]) >= wanted


def gain_of(epochs_s: dict | None) -> float | None:
    """Return flawed / repaired epoch time, the median of the pairs, or None when it could not be measured."""
    if not epochs_s or "error" in epochs_s or min(*epochs_s["flawed"], *epochs_s["repaired"]) <= 0:
        return None
    pairs = zip(epochs_s["flawed"], epochs_s["repaired"], strict=True)
    return statistics.median(flawed_s / repaired_s for flawed_s, repaired_s in pairs)


def place_of(finding: dict) -> tuple[Path, int] | None:
    """Return the (file, line) that a finding names."""
    place = finding["location"]
    return (Path(place["file"]).resolve(), place["line"]) if place else None


def findings_today(kept: Path, stored: dict) -> dict:
    """Return the diagnosis with the findings that the rules of today make of its recording."""
    if "error" in stored or not kept.exists():
        return stored
    command = [sys.executable, "-m", "flatout", "report", str(kept), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return stored | {"findings": json.loads(done.stdout)["findings"]}


def score(script: Script, result: dict) -> dict:
    """Judge one stored result; fields that cannot be judged are None."""
    findings = [f for f in result["diagnosis"].get("findings") or [] if not f["code"].startswith("MS")]
    first = f"{findings[0]['code']} {findings[0]['phase']}" if findings else result["diagnosis"].get("error", "nothing")
    if script.kind == "healthy":
        alarms = [f for f in findings if f["share"] >= FALSE_ALARM_SHARE and not f.get("optional")]
        failed = "error" in result["diagnosis"]
        return {"first": first, "alarms": None if failed else len(alarms), "findings": len(findings)}
    marked = {place for cause in script.causes for place in script.marked_lines(cause)}
    phases = {phase for cause in script.causes for phase in cause.phases}
    top, more = findings[:2], findings if script.causes[1:] else findings[:2]
    named = [finding for cause in script.causes if (finding := named_by(script, cause, more))]
    gain = gain_of(result.get("epochs_s"))
    promised = together(named, result["diagnosis"]) if named else None
    return {
        "first": first,
        "phase": bool(findings) and findings[0]["phase"] in phases,
        "line": any(place_of(f) in marked for f in top) if any(cause.line for cause in script.causes) else None,
        "code": any(f["code"] in cause.codes for f in top for cause in script.causes),
        "both": all(listed(script, cause, findings) for cause in script.causes) if script.causes[1:] else None,
        "promised": promised,
        "gain": gain,
        "error": abs(promised / gain - 1) if promised and gain else None,
    }


def named_by(script: Script, cause: Cause, findings: list[dict]) -> dict | None:
    """Return the finding that names `cause`: what has its code, in the order of `codes`, else what names its line."""
    right_code = sorted((f for f in findings if f["code"] in cause.codes), key=lambda f: cause.codes.index(f["code"]))
    right_line = [f for f in findings if place_of(f) in script.marked_lines(cause)]
    return next(iter(right_code or right_line), None)


def listed(script: Script, cause: Cause, findings: list[dict]) -> bool:
    """Tell whether a finding has a code of `cause` and, where the cause has lines, names one of them."""
    lines = script.marked_lines(cause)
    return any(f["code"] in cause.codes and (not cause.line or place_of(f) in lines) for f in findings)


def together(findings: list[dict], diagnosis: dict) -> float:
    """Return the speed-up that findings of different causes promise together.

    Shares of the step add up; what happens between the steps is a share of the whole, so its factor multiplies.
    """
    inside = {row["phase"] for row in diagnosis["breakdown"] if row["share"] > 0}
    gone = sum(1 - 1 / f["max_speedup"] for f in findings if f["phase"] in inside)
    between = math.prod(f["max_speedup"] for f in findings if f["phase"] not in inside)
    return between / max(1 - gone, 0.001)


def fmt(value: object) -> str:
    """Return a table cell."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def say(*lines: str) -> None:
    """Write lines at once, so that a long run can be followed."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def row(script: Script, judged: dict) -> str:
    """Return the table row of one script."""
    if script.kind == "healthy":
        cells = [f"{key} {fmt(judged[key])}" for key in ("alarms", "findings")]
        return f"{script.name:<24} healthy {'  '.join(cells)}  first: {judged['first']}"
    keys = ("phase", "line", "code", "both", "promised", "gain", "error")
    cells = [f"{key} {fmt(judged[key]):<4}" for key in keys]
    codes = "+".join(cause.codes[0] for cause in script.causes)
    return f"{script.name:<24} {codes:<11}  {'  '.join(cells)} first: {judged['first'][:48]}"


def exact_interval(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share, from the tails of the binomial distribution."""

    def at_least(least: int, p: float) -> float:
        return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))

    def crossing(least: int, tail: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if at_least(least, middle) < tail else (low, middle)
        return low

    tail = (1 - level) / 2
    return (crossing(right, tail) if right else 0.0), (crossing(right + 1, 1 - tail) if right < n else 1.0)


def share(label: str, verdicts: Iterable[bool | None], goal: float) -> str:
    """Return one summary line: right out of judged, with the exact 95 % interval."""
    known = [v for v in verdicts if v is not None]
    if not known:
        return f"{label:<34} not measured"
    right, n = sum(known), len(known)
    low, high = exact_interval(right, n)
    met = "met" if right / n >= goal else "MISSED"
    return f"{label:<34} {right}/{n} = {right / n:.0%} (95 % interval {low:.0%} to {high:.0%}), goal {goal:.0%}: {met}"


def errors_of_promises(errors: list[float]) -> list[str]:
    """Return the lines that say how far `max_speedup` is from the measured gain."""
    if len(errors) < 2:
        return []
    tenths = statistics.quantiles(errors, n=10, method="inclusive")
    low, median, high = statistics.quantiles(errors, n=4, method="inclusive")
    lines = []
    for label, value, goal in (("median", median, GOALS["error"]), ("90th percentile", tenths[-1], GOALS["error_p90"])):
        met = "met" if value <= goal else "MISSED"
        lines.append(f"{'max_speedup against gain':<34} {label} error {value:.0%}, goal <= {goal:.0%}: {met}")
    return [*lines, f"{'':<34} quartiles {low:.0%} and {high:.0%}, n={len(errors)}"]


def summary(judged: dict[Script, dict]) -> list[str]:
    """Return the lines that compare all scores with the goals."""
    flawed = [s for script, s in judged.items() if script.kind == "flawed"]
    healthy = [s for script, s in judged.items() if script.kind == "healthy"]
    lines = [
        share("right phase in first finding", (s["phase"] for s in flawed), GOALS["phase"]),
        share("right line in first two", (s["line"] for s in flawed), GOALS["line"]),
        share("right code in first two", (s["code"] for s in flawed), GOALS["code"]),
        share("both causes listed", (s["both"] for s in flawed), GOALS["both"]),
        *errors_of_promises([s["error"] for s in flawed if s["error"] is not None]),
    ]
    alarms = [s["alarms"] for s in healthy if s["alarms"] is not None]
    met = "met" if not any(alarms) else "MISSED"
    total = sum(s["findings"] for s in healthy)
    few = f"goal <= {GOALS['findings']}: {'met' if total <= GOALS['findings'] else 'MISSED'}"
    unknown = len(healthy) - len(alarms)
    lines.append(f"{'healthy scripts with a false alarm':<34} {sum(map(bool, alarms))}/{len(alarms)}, goal 0: {met}")
    lines.append(f"{'findings on healthy scripts':<34} {total} of any size, {few}; {unknown} not measured")
    return lines


def machine() -> dict[str, str | int]:
    """Return what the numbers depend on."""
    installed = {d.metadata["Name"] for d in metadata.distributions()}
    versions = {name: metadata.version(name) for name in ("flatout", "torch", "numpy") if name in installed}
    return {"cpu": processor_name(), "num_cpus": os.cpu_count() or 0, "python": platform.python_version(), **versions}


def store(path: Path, results: dict) -> None:
    """Write all results so that an interrupted write loses nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    partial.replace(path)


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the scripts marked quick in truth.toml")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this script; may be repeated")
    parser.add_argument("--again", action="append", metavar="NAME", help="diagnose this script once more")
    parser.add_argument("--no-gains", action="store_true", help="leave gains that are not measured yet for later")
    parser.add_argument("--out", type=Path, default=Path("planted-results.json"), help="raw results, resumed from")
    return parser.parse_args()


def main() -> int:
    """Run what is not stored yet, print a row per script and the summary."""
    options = parse_args()
    if util.find_spec("flatout") is None:
        say("error: flatout is not importable here. Install the checkout first: pip install -e .")
        return 2
    scripts = read_truth()
    if unknown := set(options.only or ()) - {script.name for script in scripts}:
        say(f"error: unknown script {', '.join(sorted(unknown))}. The names are the tables of {SUITE / 'truth.toml'}.")
        return 2
    scripts = [s for s in scripts if (s.quick or not options.quick) and s.name in (options.only or [s.name])]
    results = json.loads(options.out.read_text())["results"] if options.out.exists() else {}
    recordings = options.out.absolute().with_suffix("")
    judged = {}
    for script in scripts:
        digest = script.digest()
        known = results.get(script.name, {})
        if known.get("digest") != digest:
            known = {"digest": digest, "load": os.getloadavg()[0], "diagnosis": diagnose(script, recordings)}
        elif script.name in (options.again or ()):
            known["diagnosis"] = diagnose(script, recordings)
        before = {key: known.get("epochs_s", {}).get(key, []) for key in ("flawed", "repaired")}
        if script.kind == "flawed" and not (enough_pairs(before) or options.no_gains):
            known["epochs_s"] = measure_epochs(script, before)
        results[script.name] = known
        store(options.out, results)
        known["diagnosis"] = findings_today(recordings / script.name, known["diagnosis"])
        judged[script] = score(script, known)
        say(row(script, judged[script]))
    say("", "  ".join(f"{key} {value}" for key, value in machine().items()), *summary(judged))
    return 0


if __name__ == "__main__":
    sys.exit(main())
