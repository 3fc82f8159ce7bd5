"""How many false alarms and misses other thresholds would give, on the recordings of the planted suite and of GPUs.

A rule speaks where something passes a threshold: a number of its module, or of one that it shares with others, by a
name like MIN_SHARE. Each is made 0.25 to 4 times as large in turn, and the rules look at every recording again. Counted
are the findings of that rule, as the whole list of findings holds them: on healthy scripts (false alarms), on flawed
scripts of which it is no cause (others: what they say may well be true), and flawed scripts of which it is the first
cause and that it does not name (missed). Nothing is run: `planted.py --out planted-results.json` has made the
recordings; those of GPUs are in the repository.

    python benchmarks/thresholds.py planted-results [--out FILE]
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

from planted import machine, say
from planted_suite import Cause, Script, read_truth

from flatout.analysis.breakdown import account
from flatout.cli.recordings import find_recording
from flatout.rules.core.catalog import catalog
from flatout.rules.core.find import examine
from flatout.rules.core.rule import Rule
from flatout.schema.codec import read_run
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.run import Run

FACTORS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
LIKE_THIS = ("MIN_", "MAX_", "MOST_", "MANY_", "SHORT_", "LEAST_", "LONG_ENOUGH")
THRESHOLDS = {
    "AHEAD", "ALL_CORES", "COMPILED_SHARE", "EQUALLY_LONG", "FACTOR", "GROWING", "HARDLY", "MORE_SAMPLES", "MOSTLY",
    "NEARLY_ALL", "NOTEWORTHY", "SLOW", "STILL", "TOGETHER",
}  # fmt: skip
SHARED = ("gradient_exchanges", "gaps", "growth", "launches", "user_lines", "loader_facts", "machine_facts")
ON_GPUS = {
    "launch_bound_h100": ("CO013",),
    "attention_by_hand_h100": ("CO012",),
    "channels_first_h100": ("CO011",),
    "blocking_copies_h100": ("TR002",),
    "waits_in_the_step_h100": ("SY001", "CO010"),
    "allocator_retries_h100": ("ME004", "CO010"),
    "unaligned_product_h200": ("CO017",),
    "search_for_each_shape_h200": ("CO016",),
    "outputs_copied_back_h200": ("TR005",),
    "small_batch_h200": ("ME005",),
    "float_transfer_h200": ("TR003", "TR001"),
    "constant_transfer_h200": ("TR001", "CO010"),
    "ladder_h200": ("IN003", "IN007", "IN002", "TR001"),
}
RECORDINGS = Path(__file__).parents[1] / "tests/unit/rules/recordings"
HEAD = "code   threshold                      value  scripts | healthy,others,missed at {factors} times that"


@dataclass
class Judged:
    """One recording, and what each rule alone makes of it today."""

    script: Script
    run: Run
    breakdown: Breakdown
    found: dict[str, Finding | None] = field(default_factory=dict)

    def names(self, rule: Rule) -> bool:
        """Return whether the list of findings would hold that rule's, had it said what it says now."""
        finding = self.said(rule)
        if finding is None:
            return False
        rules = [_saying(each) for each in {**self.found, rule.code: finding}.values() if each is not None]
        return any(
            each.code == rule.code for each in examine(self.run, self.breakdown, self.run.ceilings, rules).findings
        )

    def said(self, rule: Rule) -> Finding | None:
        """Return the rule's finding alone; what fails finds nothing."""
        try:
            return rule.check(self.run, self.breakdown, self.run.ceilings)
        except Exception:  # as where the rules are run for a person: one that fails costs only its own finding
            return None


def _saying(finding: Finding) -> SimpleNamespace:
    return SimpleNamespace(code=finding.code, name=finding.name, check=lambda *_: finding)


def judged(script: Script, file: Path) -> Judged:
    """Return a recording with what each rule says of it."""
    run = read_run(file)
    one = Judged(script, run, account(run))
    one.found = {rule.code: one.said(rule) for rule in catalog()}
    return one


def read(folder: Path) -> list[Judged]:
    """Return every recording below `folder` that is one of the suite's, then those of GPUs."""
    suite = [script for script in read_truth() if (folder / script.name).exists()]
    recordings = [judged(script, find_recording(folder / script.name)) for script in suite]
    for name, codes in ON_GPUS.items():
        causes = tuple(Cause((), (code,), "") for code in codes)
        recordings.append(judged(Script(name, "GPU", "", causes), RECORDINGS / f"{name}.jsonl"))
    return recordings


def thresholds(rule: Rule) -> Iterator[tuple[ModuleType, str, float]]:
    """Yield the numbers that something has to pass for a rule: of its own module and of those that it shares."""
    own = sys.modules[rule.check.__module__]
    used = {getattr(value, "__module__", "") for value in vars(own).values()}
    shared = [f"flatout.rules.facts.{name}" for name in SHARED if f"flatout.rules.facts.{name}" in used]
    for module in (own, *(sys.modules[name] for name in shared)):
        for name, value in vars(module).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and (name.startswith(LIKE_THIS) or name in THRESHOLDS):
                yield module, name, value


def count(recordings: list[Judged], rule: Rule) -> tuple[int, int, int]:
    """Return how many healthy and other scripts the rule speaks of now, and how many it should name and does not."""
    healthy = others = missed = 0
    for one in recordings:
        named = one.names(rule)
        if one.script.kind == "healthy":
            healthy += named
        elif _first(one, rule):
            missed += not named
        else:
            others += named and not any(rule.code in cause.codes for cause in one.script.causes)
    return healthy, others, missed


def _first(one: Judged, rule: Rule) -> bool:
    return any(cause.codes[0] == rule.code for cause in one.script.causes)


def curve(recordings: list[Judged], rule: Rule, module: ModuleType, name: str) -> list[tuple[int, int, int]]:
    """Return the counts with each factor on one threshold, which is put back."""
    value = getattr(module, name)
    counts = []
    try:
        for factor in FACTORS:
            setattr(module, name, round(value * factor) if isinstance(value, int) else value * factor)
            counts.append(count(recordings, rule))
    finally:
        setattr(module, name, value)
    return counts


def rows(recordings: list[Judged]) -> Iterator[str]:
    """Yield a line for each threshold that decides something in these recordings, then the names of the others."""
    silent = []
    for rule in catalog():
        expected = sum(_first(one, rule) for one in recordings)
        for module, name, value in thresholds(rule):
            counts = curve(recordings, rule, module, name)
            own = module.__name__ == rule.check.__module__
            label = name if own else f"{module.__name__.rpartition('.')[2]}.{name}"
            if len(set(counts)) == 1:
                silent.append(f"{rule.code} {label}")
                continue
            cells = "  ".join(",".join(map(str, each)) for each in counts)
            yield f"{rule.code}  {label:<27} {value!r:>9} {expected:>8} | {cells}"
    yield ""
    yield f"these recordings do not tell, from a quarter to four times the value: {', '.join(silent) or 'none'}"


def main() -> int:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, help="the folder that planted.py keeps beside its raw results")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    if not options.recordings.is_dir():
        say(f"error: {options.recordings} holds no recording. planted.py --out X.json makes them in the folder X.")
        return 2
    recordings = read(options.recordings)
    number = {kind: sum(one.script.kind == kind for one in recordings) for kind in ("flawed", "healthy", "GPU")}
    told = [
        "  ".join(f"{key} {value}" for key, value in machine().items()),
        f"{number['flawed']} flawed and {number['healthy']} healthy scripts, {number['GPU']} recordings of GPUs",
        HEAD.format(factors=", ".join(f"{factor:g}" for factor in FACTORS)),
    ]
    say(*told)
    for row in rows(recordings):
        say(row)
        told.append(row)
    if options.out:
        options.out.write_text("\n".join(told) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
