"""How many false alarms and misses other thresholds would give, on the recordings of the planted suite.

A rule speaks where something passes a threshold: a number of its module by a name like MIN_SHARE. Each is made 0.25 to
4 times as large in turn, and the rules look at every recording again. Counted are the findings of that rule, as the
whole list of findings holds them: on healthy scripts (false alarms), on flawed scripts of which it is no cause (others:
what they say may well be true), and flawed scripts of which it is the first cause and that it does not name (misses).
Nothing is run: `planted.py --out planted-results.json` has made the recordings.

    python benchmarks/thresholds.py planted-results [--out FILE]
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

from planted import Script, machine, read_truth, say

from flatout.analysis.breakdown import account
from flatout.cli.recordings import find_recording
from flatout.rules.catalog import catalog
from flatout.rules.find import examine
from flatout.rules.rule import Rule
from flatout.schema.codec import read_run
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.run import Run

FACTORS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
THRESHOLD = ("MIN_", "MAX_", "MOST_")
HEAD = "code   threshold            value  scripts | healthy, others, missed at {factors} times that"


@dataclass
class Judged:
    """One recording, and what each rule alone makes of it today."""

    script: Script
    run: Run
    breakdown: Breakdown
    found: dict[str, Finding | None] = field(default_factory=dict)

    def codes(self, again: Rule | None = None) -> set[str]:
        """Return the codes of the findings that the list would hold, had `again` said what it says now."""
        found = dict(self.found) if again is None else {**self.found, again.code: self.said(again)}
        rules = [_saying(code, finding) for code, finding in found.items() if finding is not None]
        return {finding.code for finding in examine(self.run, self.breakdown, self.run.ceilings, rules).findings}

    def said(self, rule: Rule) -> Finding | None:
        """Return the rule's finding alone; what fails finds nothing."""
        try:
            return rule.check(self.run, self.breakdown, self.run.ceilings)
        except Exception:  # as where the rules are run for a person: one that fails costs only its own finding
            return None


def _saying(code: str, finding: Finding) -> SimpleNamespace:
    return SimpleNamespace(code=code, name=finding.name, check=lambda *_: finding)


def read(folder: Path) -> list[Judged]:
    """Return every recording below `folder` that is one of the suite's, with what each rule says of it."""
    recordings = []
    for script in read_truth():
        if not (folder / script.name).exists():
            continue
        run = read_run(find_recording(folder / script.name))
        one = Judged(script, run, account(run))
        one.found = {rule.code: one.said(rule) for rule in catalog()}
        recordings.append(one)
    return recordings


def thresholds(module: ModuleType) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a rule's own module that something has to pass, by name."""
    for name, value in vars(module).items():
        if name.startswith(THRESHOLD) and isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def count(recordings: list[Judged], rule: Rule) -> tuple[int, int, int]:
    """Return how many healthy and other scripts the rule speaks of now, and how many it should name and does not."""
    healthy = others = missed = 0
    for one in recordings:
        named = rule.code in one.codes(rule)
        if one.script.kind == "healthy":
            healthy += named
        elif any(cause.codes[0] == rule.code for cause in one.script.causes):
            missed += not named
        else:
            others += named and not any(rule.code in cause.codes for cause in one.script.causes)
    return healthy, others, missed


def curve(recordings: list[Judged], rule: Rule, name: str) -> list[tuple[int, int, int]]:
    """Return the counts with each factor on one threshold, which is put back."""
    module = sys.modules[rule.check.__module__]
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
        expected = sum(any(cause.codes[0] == rule.code for cause in one.script.causes) for one in recordings)
        for name, value in thresholds(sys.modules[rule.check.__module__]):
            counts = curve(recordings, rule, name)
            if len(set(counts)) == 1:
                silent.append(f"{rule.code} {name}")
                continue
            cells = "  ".join(",".join(map(str, each)) for each in counts)
            yield f"{rule.code}  {name:<19} {value:>7g} {expected:>8} | {cells}"
    yield ""
    yield f"these recordings do not tell, from a quarter to four times the value: {', '.join(silent) or 'none'}"


def main() -> int:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, help="the folder that planted.py keeps beside its raw results")
    parser.add_argument("--out", type=Path, help="write the text here, too")
    options = parser.parse_args()
    recordings = read(options.recordings) if options.recordings.is_dir() else []
    if not recordings:
        say(f"error: {options.recordings} holds no recording. planted.py --out X.json makes them in the folder X.")
        return 2
    healthy = sum(one.script.kind == "healthy" for one in recordings)
    told = [
        "  ".join(f"{key} {value}" for key, value in machine().items()),
        f"{len(recordings) - healthy} flawed and {healthy} healthy scripts, one recording each",
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
