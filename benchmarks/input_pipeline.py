"""Input pipelines: the script's own DataLoader, the compiled one, hand-written batched code, other libraries.

Every contender runs in a fresh process, the whole list twice in alternation (with --quick once). Figures are samples/s
of wall clock, with every restart of a pass; the consumer only takes the batch. Plain loaders keep their workers between
passes. A run during which other processes took more than a quarter of a core is marked !, and left out of ratios and
goals where an undisturbed one exists. Workloads with goals for a device bring batches there, too, where there is one.

    python benchmarks/input_pipeline.py [WORKLOAD ...] [--quick] [--peers] [--seconds S] [--out FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from beside import install
from input_by_hand import BY_HAND, BY_HAND_ON_DEVICE
from input_peers import PACKAGES, PEERS, package_of
from input_workloads import WORKLOADS, Goal, Setting, Workload, loops_per_ms, write_photos

from flatout.machine import processor_name

HERE = Path(__file__).resolve().parent
DISTURBED = 0.25
BEST = {
    "plain": "the best plain loader",
    "plain first": "the best plain loader's first pass",
    "hand": "the best by hand",
}


@dataclass
class Told:
    """What one contender's runs gave."""

    results: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    def rate(self, which: str) -> float | None:
        """Return the mean samples/s of the undisturbed runs, or of all where there are none."""
        quiet = [result[which] for result in self.results if result["foreign"] <= DISTURBED]
        found = quiet or [result[which] for result in self.results]
        return statistics.mean(found) if found else None


Table = dict[str, Told]


# -- running ----------------------------------------------------------------------------------------------------------


def contenders(name: str, peers: Iterable[str]) -> list[str]:
    """Return the names of all contenders of a workload, those of the installed peers last."""
    workload, installed = WORKLOADS[name], set(peers)
    return [
        *(f"plain: {number} workers" for number in workload.plain),
        *(f"compiled: {number} workers" for number in workload.compiled),
        *(f"by hand: {each}" for each in BY_HAND[name]),
        *(_on_a_device(name) if torch.cuda.is_available() else ()),
        *(f"peer: {each}" for each in PEERS[name] if package_of(each) in installed),
    ]


def _on_a_device(name: str) -> Iterable[str]:
    if any(goal.of == "on a device" for goal in WORKLOADS[name].goals):
        yield "on a device: 0 workers"
    yield from (f"by hand on a device: {each}" for each in BY_HAND_ON_DEVICE.get(name, ()))


def one_run(python: Path, workload: str, contender: str, setting: Setting, seconds: float) -> dict[str, Any] | str:
    """Time one contender in a fresh process; return its figures, or why there are none."""
    words = [python, HERE / "input_contender.py", workload, contender, json.dumps(asdict(setting)), str(seconds)]
    limit_s = 240 + 10 * seconds
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:  # some peers' threads abort the process at its end, after the result
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def run(name: str, python: Path, peers: Iterable[str], setting: Setting, seconds: float, rounds: int) -> Table:
    """Run every contender of a workload in turn, the whole list `rounds` times."""
    table = {contender: Told() for contender in contenders(name, peers)}
    for _ in range(rounds):
        for contender, told in table.items():
            if told.error:
                continue
            with_peers = python if contender.startswith("peer") else Path(sys.executable)
            found = one_run(with_peers, name, contender, setting, seconds)
            if isinstance(found, str):
                told.error = found
            else:
                told.results.append(found)
            print(f"{name}, {contender}: {found if told.error else short(found['later'])}", file=sys.stderr, flush=True)
    return table


# -- telling ----------------------------------------------------------------------------------------------------------


def short(rate: float | None) -> str:
    if rate is None:
        return "-"
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.{2 if rate < 10 * limit else 1}f}{unit}"
    return f"{rate:.0f}"


def best(table: Table, kind: str, which: str) -> float | None:
    rates = [told.rate(which) for name, told in table.items() if name.startswith(f"{kind}:")]
    return max((rate for rate in rates if rate is not None), default=None)


def ratio(one: float | None, other: float | None) -> str:
    return "-" if one is None or other is None else f"{one / other:.2f}"


def bits(name: str, told: Told, table: Table) -> str:
    """Return whether the contender's first batches equal the plain loader's."""
    if told.results[0]["same"] is not None:
        return "same" if all(result["same"] for result in told.results) else "DIFFER"
    kind, _, workers = name.partition(": ")
    plain = table.get(f"plain: {workers}")
    if kind not in ("compiled", "on a device") or plain is None or not plain.results:
        return "-"
    marks = [result["digests"] for result in (*told.results, *plain.results)]
    return "same" if all(mark == marks[0] for mark in marks) else "DIFFER"


def row(name: str, told: Told, table: Table, workload: Workload) -> list[str]:
    if told.error:
        return [name, f"left out: {told.error}"]
    runs = [short(each["later"]) + "!" * (each["foreign"] > DISTURBED) for each in told.results]
    firsts = [short(each["first"]) for each in told.results]
    pauses = [each["pause_ms"] for each in told.results if each["pause_ms"] is not None]
    later = told.rate("later")
    return [
        name, *runs, ratio(later, best(table, "plain", "later")), ratio(later, best(table, "by hand", "later")),
        *firsts, f"{max(pauses):.1f}" if pauses else "-", "random" if workload.random else bits(name, told, table),
    ]  # fmt: skip


def judged(goal: Goal, table: Table) -> str:
    """Return one line: what was to be reached, by which passes, what was, and whether that is enough."""
    reached = best(table, goal.of, goal.measure)
    which = {"nothing": None, "plain": ("plain", "later"), "plain first": ("plain", "first")}
    by_hand = "by hand" if goal.of == "compiled" else f"by hand {goal.of}"
    against = which.get(goal.against, (by_hand, "later"))
    if against is not None:
        other = best(table, *against)
        reached = None if reached is None or other is None else reached / other
    passes = {"first": "first pass", "later": "later passes"}[goal.measure]
    shown = short if against is None else lambda value: "-" if value is None else f"{value:.2f}x"
    beside = "" if against is None else f" {BEST[goal.against]}"
    note = f" ({goal.note})" if goal.note else ""
    verdict = "not measured" if reached is None else "reached" if reached >= goal.at_least else "missed"
    where = "" if goal.of == "compiled" else f" {goal.of}"
    return f"goal{where}, {passes}: >= {shown(goal.at_least)}{beside}{note}: {shown(reached)}, {verdict}"


def pause_line(table: Table, limit_ms: float) -> str:
    pauses = [
        result["pause_ms"]
        for name, told in table.items() if name.startswith("compiled")
        for result in told.results if result["pause_ms"] is not None
    ]  # fmt: skip
    verdict = "not measured" if not pauses else "reached" if max(pauses) <= limit_ms else "missed"
    shown = f"{max(pauses):.1f} ms" if pauses else "-"
    return f"goal, longest pause between passes: <= {limit_ms:.0f} ms: {shown}, {verdict}"


def text_of(name: str, table: Table, num_samples: int) -> str:
    """Return a workload's table, the compiled loader's own word, and the goals."""
    workload = WORKLOADS[name]
    num_runs = range(1, 1 + max(len(told.results) for told in table.values()))
    header = ["contender", *(f"run {each}" for each in num_runs), "x plain", "x by hand"]
    header += [*(f"first {each}" for each in num_runs), "pause ms", "bits"]
    rows = [header, *(row(each, told, table, workload) for each, told in table.items())]
    full = [line for line in rows if len(line) == len(header)]
    widths = [max(len(line[column]) for line in full) for column in range(len(header))]
    widths[0] = max(len(line[0]) for line in rows)
    lines = [f"{name}: {workload.title}" + (f" ({num_samples:,} here)" if num_samples != workload.num_samples else "")]
    for line in rows:
        cells = [f"{line[0]:{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=False)]
        lines.append("  ".join(cells))
    for each, told in table.items():
        lines += [f"{each} explains: {told.results[-1]['explain']}"] if told.results and "compiled" in each else []
    lines += [judged(goal, table) for goal in workload.goals]
    if workload.pause_ms is not None:
        lines.append(pause_line(table, workload.pause_ms))
    return "\n".join(lines)


def head(seconds: float, rounds: int, failed: dict[str, str]) -> str:
    def known(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"no {package}"

    machine = f"{processor_name()}, {len(os.sched_getaffinity(0))} CPUs"
    packages = ", ".join(known(each) for each in ("torch", "torchvision", "pillow", "numpy"))
    return "\n".join([
        f"Input pipelines, samples/s; {machine}, Python {platform.python_version()}, {packages}",
        f"n={rounds} in fresh processes, {seconds:g} s each after the first pass; 'first': the first pass, start of "
        f"workers included; !: other processes took more than {DISTURBED} of a core",
        *(f"peer {name} is left out, it could not be installed: {reason}" for name, reason in failed.items()),
    ])  # fmt: skip


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", nargs="*", help=f"of {', '.join(WORKLOADS)}; all where none is named")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the samples, 1 s each, once: shows that it works"
    )
    parser.add_argument("--peers", action="store_true", help=f"install and time {', '.join(PACKAGES)}, too")
    parser.add_argument("--peers-folder", type=Path, help="where they are installed and kept; else a temporary folder")
    parser.add_argument("--seconds", type=float, help="measured time of each run, 4 where none is given")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    if unknown := set(options.workload) - set(WORKLOADS):
        parser.error(f"there is no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    return options


def main() -> None:
    """Time the workloads that were asked for and print a table for each."""
    options = arguments()
    seconds = options.seconds or (1.0 if options.quick else 4.0)
    with tempfile.TemporaryDirectory() as name:
        python, failed, peers = Path(sys.executable), {}, []
        wanted = options.workload or list(WORKLOADS)
        if options.peers:
            needed = list(dict.fromkeys(package_of(each) for workload in wanted for each in PEERS[workload]))
            python, failed = install(
                (options.peers_folder or Path(name, "peers")).absolute(), {each: PACKAGES[each] for each in needed}
            )
            peers = [each for each in needed if each not in failed]
        rounds = 1 if options.quick else 2
        texts = [head(seconds, rounds, failed)]
        print(texts[0], flush=True)
        loops = loops_per_ms()
        for each in wanted:
            number = WORKLOADS[each].num_samples // (10 if options.quick else 1)
            setting = Setting(number, loops, str(Path(name, "photos")))
            if each == "jpeg":
                write_photos(Path(setting.photos), number)
            texts.append(text_of(each, run(each, python, peers, setting, seconds, rounds), number))
            print(f"\n{texts[-1]}", flush=True)
            if options.out:
                options.out.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
