"""Give the planted scripts to other tools that diagnose training, and compare what they say with what is planted.

Each tool is installed from PyPI into an environment of its own under a temporary folder, beside the torch of this
interpreter, and used as its documentation says. No script is edited:

- `flatout diagnose SCRIPT`
- `train-doctor profile -- python SCRIPT`
- `gpuprof`: its two documented lines, `with gpuprof.profile(...)`, around the whole script
- `traceml run`: its documentation asks for `with trace_step(model)` around what follows the fetch of a batch. Here
  hooks enter it at the first forward pass with gradients and leave it after the optimizer's step: the same place
- TorchTidy, `torch.profiler._pattern_matcher.report_all_anti_patterns`, on ten steps recorded with shapes and stacks

What a tool says first is its answer. Whether that is the planted cause is decided by the words in `WORDS`, one
expression for each rule code, the same for every tool but flatout, which says a code: an answer is right where the
expression of one of the accepted codes matches it. The words are generous: "the DataLoader is the bottleneck" is a
right answer for every cause in the input, where flatout's code must be that of the cause. A line is right where the
whole answer names a file and a marked line of it. Whether the cause is anywhere among what was said is counted, too.
On a healthy script every finding counts; those that claim 10 % or more count as alarms where a tool gives a share.
A tool that could not measure a script is "blind" there, and no answer is a wrong answer. Where another tool names the
cause first and flatout does not, a line below the table says so.

    python benchmarks/peers_diagnosis.py --quick
    python benchmarks/peers_diagnosis.py --tool train-doctor --only thumbnails
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

import planted
from planted_suite import Script, read_truth

LIMIT_S = 240
EPOCHS = 6  # for tools that watch until the script ends
INPUT = r"loader|data.?wait|data loading|input.?bound|input pipeline|num_workers|preprocess"
LOOP = r"python (code|loop|work)|host.?bound|host code|outside the model|vectori[sz]"
WORDS = {  # what an answer must say to name the cause that a code stands for
    **{f"IN{number:03}": INPUT for number in range(1, 14)},
    "IN004": INPUT + r"|collat",
    "IN005": INPUT + r"|sampler",
    "IN008": INPUT + r"|generator|" + LOOP,
    "IN009": INPUT + r"|persistent_workers|worker.{0,20}(start|spawn|respawn)",
    "HO001": LOOP + r"|metric|callback",
    "HO002": r"log(ging|s)?[ _].{0,20}(loop|step)|print|writes",
    "HO003": LOOP + r"|metric|grow|drift|slower over time",
    "HO004": r"garbage|\bgc\b|gc\.collect",
    "CO001": r"single.?tensor|foreach|fused optimi[sz]er|optimizer.{0,20}(bound|dominat|slow|heavy)",
    "CO002": r"float64|double precision|fp64",
    "CO003": r"anomaly",
    "CO004": r"loop index|python loop|vectori[sz]|forward.{0,20}python",
    "CO005": r"graph.?break",
    "CO006": r"recompil",
    "IN014": INPUT + r"|crop",
    "CO007": r"threads?|num_threads|omp|oversubscri",
    "CO008": r"denormal|subnormal|flush",
    "CO009": r"padd(ing|ed)|pad to|bucket",
    "CO014": r"(twice|repeated|again|redundant|duplicate).{0,40}(forward|comput|model)",
    "CO019": r"(same|constant|unchanging|invariant|recomput).{0,40}(forward|step|each|every|comput)|hoist",
    "CO020": r"aten::(norm|var|std|argmax|argmin|amax|linalg)|reduction|slow.{0,20}(norm|var)",
    "DI001": r"straggler|slowest rank|rank.{0,20}(slow|behind|wait)|imbalance",
    "DI002": r"threads?|cores?.{0,30}(shared|contention|oversubscri)|oversubscri",
    "CO022": r"requires_grad|freez|frozen|unused.{0,12}(gradient|parameter)",
    "DI003": r"all.?reduce|gradient.{0,20}(sync|exchange)|communication|nccl|gloo",
    "DI004": r"no_sync|accumulat|all.?reduce|communication",
    "DI005": r"uneven|imbalance|straggler|batch.{0,20}(size|differ)",
    "ME001": r"retain|graph.{0,20}alive|memory (creep|leak|growth)|memory.{0,20}(growing|rising)",
    "ME002": r"memory.{0,20}(grow|creep|leak|rising)|(keep|accumulat|append).{0,40}(tensor|list|memory)",
    "EP001": r"validation|evaluation",
    "EP002": r"validation|evaluation|no_grad",
    "EP003": r"checkpoint|torch\.save",
    "EP004": r"epoch.{0,20}(gap|start|setup)|between epochs",
}
SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
GPUPROF = """
import os, runpy, sys
import gpuprof
package = sys.argv[1] == "-m"
sys.argv = sys.argv[2:] if package else sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
with gpuprof.profile("planted"):
    (runpy.run_module if package else runpy.run_path)(sys.argv[0], run_name="__main__")
"""
TRACEML = """
import os, runpy, sys
import torch
import traceml_ai as traceml
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
traceml.init(mode="auto")
package = sys.argv[1] == "-m"
sys.argv = sys.argv[2:] if package else sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
entered = []
def enter(module, _):
    if not entered and torch.is_grad_enabled():
        entered.append(traceml.trace_step(module))
        entered[0].__enter__()
def leave(*_):
    if entered:
        entered.pop().__exit__(None, None, None)
register_module_forward_pre_hook(enter)
register_optimizer_step_post_hook(leave)
(runpy.run_module if package else runpy.run_path)(sys.argv[0], run_name="__main__")
"""
TORCHTIDY = """
import os, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import _pattern_matcher
package = sys.argv[1] == "-m"
sys.argv = sys.argv[2:] if package else sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
profile = torch.profiler.profile(with_stack=True, record_shapes=True, profile_memory=True)
steps = 0
def count(*_):
    global steps
    steps += 1
    if steps == 5:
        profile.start()
    if steps == 15:
        profile.stop()
        _pattern_matcher.report_all_anti_patterns(profile)
        sys.stdout.flush()
        os._exit(0)
register_optimizer_step_post_hook(count)
(runpy.run_module if package else runpy.run_path)(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Said:
    """What a tool answered about one script."""

    findings: list[str] = field(default_factory=list)  # what it said, the most important first
    shares: list[float | None] = field(default_factory=list)  # of the step, as far as it names one
    blind: str | None = None  # why it saw nothing, in its own words
    wall_s: float = 0.0


def environment_of(package: str | None, folder: Path) -> Path:
    """Return the interpreter that has `package` and this interpreter's torch; installs it where it is not there."""
    if package is None:
        return Path(sys.executable)
    home = folder / package
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        ours = next(path for path in sys.path if path.endswith("site-packages"))
        theirs = next((home / "lib").glob("python*/site-packages"))
        (theirs / "zz_torch_of_the_benchmark.pth").write_text(ours + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python


def run(command: list[str], script: Script, files: dict[str, str] | None = None) -> tuple[str, float]:
    """Return what a command writes, and its final_summary.json behind that, and its time; `files` lie beside it."""
    with tempfile.TemporaryDirectory(prefix="peers-") as tmp:
        for name, text in (files or {}).items():
            (Path(tmp) / name).write_text(text)
        begin_s = time.perf_counter()
        setting = {"cwd": tmp, "env": planted.environment_for(script.home), "timeout": LIMIT_S}
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **setting)
        except subprocess.TimeoutExpired:
            return f"no answer within {LIMIT_S} s", LIMIT_S
        wall_s = time.perf_counter() - begin_s
        summaries = [path.read_text() for path in Path(tmp).rglob("final_summary.json")]
        return "\n".join([done.stdout, *summaries]), wall_s


def through(code: str, python: Path, script: Script) -> list[str]:
    """Return a command that runs a script inside `code`."""
    return [str(python), "-c", code, *script.command(script.home), "--epochs", str(EPOCHS)]


def ask_flatout(python: Path, script: Script) -> Said:
    """Return what `flatout diagnose` says."""
    with tempfile.TemporaryDirectory() as kept:
        return as_said(planted.diagnose(script, Path(kept)))


def ask_recordings(results: Path, script: Script) -> Said:
    """Return what today's rules say of the recording that `planted.py --out RESULTS` made of a script."""
    known = json.loads(results.read_text())["results"].get(script.name)
    if known is None:
        return Said(blind=f"{results} has no recording of it")
    recordings = results.absolute().with_suffix("")
    return as_said(planted.findings_today(recordings / script.name, known["diagnosis"]))


def as_said(result: dict) -> Said:
    """Return a diagnosis as answers; the code comes first in each."""
    if "error" in result:
        return Said(blind=result["error"], wall_s=result.get("wall_s", LIMIT_S))
    found = [f for f in result["findings"] if not f["code"].startswith("MS")]
    places = [(f["location"] or {"file": "", "line": 0}) for f in found]
    texts = [f"{f['code']} {p['file']}:{p['line']} {f['message']}" for f, p in zip(found, places, strict=True)]
    return Said(texts, [f["share"] for f in found], None, result["wall_s"])


def ask_train_doctor(python: Path, script: Script) -> Said:
    """Return what `train-doctor profile` says."""
    tool = [str(python), "-m", "train_doctor", "profile", "--json", "--", str(python)]
    text, wall_s = run([*tool, *script.command(script.home)], script)
    begin = text.find("{")
    try:
        report, _ = json.JSONDecoder().raw_decode(text[begin:])
    except ValueError:
        return Said(blind=text.strip()[-200:], wall_s=wall_s)
    found = report["findings"]
    texts = [" ".join(str(f.get(key)) for key in ("id", "title", "evidence", "suggestion")) for f in found]
    blind = None if (report.get("step_time_ms") or {}).get("n") else "; ".join(report.get("limits") or ["no steps"])
    return Said(texts, [f.get("score") for f in found], blind, wall_s)


def ask_gpuprof(python: Path, script: Script) -> Said:
    """Return the insights that gpuprof prints when its context ends."""
    text, wall_s = run(through(GPUPROF, python, script), script)
    found = re.findall(r"^\s*\[(?:HIGH|MED|MEDIUM|LOW)\]\s*(.+)$", text, re.MULTILINE)
    shares = [float(match[1]) / 100 if (match := SHARE.search(each)) else None for each in found]
    return Said(found, shares, None if "gpuprof" in text else text.strip()[-200:], wall_s)


def ask_traceml(python: Path, script: Script) -> Said:
    """Return the primary diagnosis of TraceML's final summary."""
    tool = [str(python.with_name("traceml")), "run", "train_under_traceml.py", "--mode=summary", "--args"]
    command = [*tool, *script.command(script.home), "--epochs", str(EPOCHS)]
    text, wall_s = run(command, script, {"train_under_traceml.py": TRACEML})
    begin = text.find('{\n  "schema_version"')
    try:
        primary = json.loads(text[begin:])["primary_diagnosis"] if begin >= 0 else None
    except (ValueError, KeyError):
        primary = None
    if primary is None:
        return Said(blind=text.strip()[-200:], wall_s=wall_s)
    told = " ".join(str(primary.get(key)) for key in ("status", "summary", "action"))
    if primary.get("kind") == "INSUFFICIENT_STEP_TIME_DATA":
        return Said(blind=told, wall_s=wall_s)
    nothing = primary.get("kind") in ("NO_CLEAR_PERFORMANCE_BOTTLENECK", "COMPUTE_BOUND")  # both: nothing is wrong
    match = SHARE.search(told)
    return Said([] if nothing else [told], [] if nothing else [float(match[1]) / 100 if match else None], None, wall_s)


def ask_torchtidy(python: Path, script: Script) -> Said:
    """Return the patterns that TorchTidy matches, in the order in which it sums them up."""
    text, wall_s = run(through(TORCHTIDY, python, script), script)
    if "TorchTidy Report" not in text:
        return Said(blind="fewer than 15 steps of torch.optim: " + text.strip()[-120:], wall_s=wall_s)
    found = [part.strip() for part in re.split(r"\n(?=.*:\d+.*\n)|Summary:", text.split("TorchTidy Report")[1])]
    found = [part for part in found if "detected" in part.lower() or "pattern" in part.lower()]
    return Said(found, [None] * len(found), None, wall_s)


TOOLS = {
    "flatout": (None, ask_flatout),
    "train-doctor": ("train-doctor", ask_train_doctor),
    "gpuprof": ("gpuprof", ask_gpuprof),
    "traceml": ("traceml-ai", ask_traceml),
    "torchtidy": (None, ask_torchtidy),
}


def judge(tool: str, script: Script, said: Said) -> dict:
    """Return whether an answer names what is planted; for a healthy script, what it says all the same."""
    if script.kind == "healthy":
        alarms = [each for each in said.shares if each is not None and each >= planted.FALSE_ALARM_SHARE]
        return {"findings": len(said.findings), "alarms": len(alarms)}
    codes = {code for cause in script.causes for code in cause.codes}
    first = said.findings[0] if said.findings else ""
    whole = "\n".join(said.findings[:2])
    lines = {place for cause in script.causes for place in script.marked_lines(cause)}
    named = any(re.search(rf"{re.escape(path.name)}\W{{1,12}}(?:line )?{line}\b", whole) for path, line in lines)
    right = first[:5] in codes if tool == "flatout" else any(re.search(WORDS[c], first, re.IGNORECASE) for c in codes)
    return {"cause": right, "line": named if any(cause.line for cause in script.causes) else None}


def anywhere(tool: str, script: Script, row: dict) -> bool:
    """Return whether any of the findings, as far as they were kept, names a planted cause."""
    codes = {code for cause in script.causes for code in cause.codes}
    words = codes if tool == "flatout" else {WORDS[code] for code in codes}
    return any(re.search(each, row["said"], re.IGNORECASE) for each in words)


def table(results: dict[str, dict[str, dict]], scripts: dict[str, Script]) -> list[str]:
    """Return the side-by-side table."""
    kinds = {name: script.kind for name, script in scripts.items()}
    heads = ("right cause first", "anywhere", "right line", "healthy: any finding", ">= 10 %", "blind")
    widths = (19, 10, 12, 22, 9, 8)
    lines = [f"{'tool':<14}" + "".join(f"{head:<{width}}" for head, width in zip(heads, widths, strict=True)) + "time"]
    for tool, rows in results.items():
        flawed = [row for name, row in rows.items() if kinds[name] == "flawed"]
        healthy = [row for name, row in rows.items() if kinds[name] == "healthy"]
        if not rows:
            continue
        cause, asked = [row["cause"] for row in flawed], [row["line"] for row in flawed if row["line"] is not None]
        found = [anywhere(tool, scripts[name], row) for name, row in rows.items() if kinds[name] == "flawed"]
        wall_s = sorted(row["wall_s"] for row in rows.values())[len(rows) // 2]
        cells = [
            f"{sum(cause)}/{len(cause)}",
            f"{sum(found)}/{len(found)}",
            f"{sum(asked)}/{len(asked)}",
            f"{sum(row['findings'] > 0 for row in healthy)}/{len(healthy)}",
            f"{sum(row['alarms'] > 0 for row in healthy)}/{len(healthy)}",
            f"{sum(row['blind'] is not None for row in rows.values())}/{len(rows)}",
        ]
        row = "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"{tool:<14}{row}median {wall_s:.0f} s")
    return [*lines, *ahead(results)]


def ahead(results: dict[str, dict[str, dict]]) -> list[str]:
    """Return one line for each script whose cause another tool named first and flatout did not."""
    ours = results.get("flatout", {})
    return [
        f"{tool} is ahead on {name}: {row['said'][:90]}"
        for tool, rows in results.items()
        for name, row in rows.items()
        if tool != "flatout" and row.get("cause") and name in ours and not ours[name].get("cause")
    ]


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the scripts marked quick in truth.toml")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this script; may be repeated")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool; may be repeated")
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "flatout-peers")
    parser.add_argument("--planted", type=Path, metavar="FILE", help="take flatout's answers from planted.py's results")
    parser.add_argument("--out", type=Path, default=Path("peers-results.json"), help="raw results, resumed from")
    return parser.parse_args()


def main() -> int:
    """Ask every tool about every script, as far as that is not stored yet, and print the table."""
    options = parse_args()
    truth = read_truth()
    scripts = [s for s in truth if (s.quick or not options.quick) and s.name in (options.only or [s.name])]
    stored = json.loads(options.out.read_text()) if options.out.exists() else {}
    results = {tool: stored.get(tool, {}) for tool in TOOLS}
    for tool in options.tool or TOOLS:
        package, ask = TOOLS[tool]
        recorded = tool == "flatout" and options.planted is not None
        try:
            python = environment_of(package, options.environments)
        except subprocess.SubprocessError as failure:
            planted.say(f"{tool}: could not be installed: {failure}")
            continue
        for script in scripts:
            digest = script.digest()
            if results[tool].get(script.name, {}).get("digest") == digest:
                continue
            said = ask_recordings(options.planted, script) if recorded else ask(python, script)
            row = judge(tool, script, said) | {"said": " | ".join(said.findings)[:2000], "blind": said.blind}
            results[tool][script.name] = row | {"wall_s": said.wall_s, "digest": digest}
            options.out.write_text(json.dumps(results, indent=1))
            first = said.findings[0] if said.findings else f"nothing{f' ({said.blind})' if said.blind else ''}"
            planted.say(f"{tool:<14}{script.name:<24}{row.get('cause', row.get('findings'))!s:<7}{first[:80]!r}")
    machine = "  ".join(f"{key} {value}" for key, value in planted.machine().items())
    shown = {tool: rows for tool, rows in results.items() if rows}
    planted.say("", machine, *table(shown, {script.name: script for script in truth}))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
