"""Verdicts on scripts: run plain twice and compiled once, record by record."""

import re
from dataclasses import dataclass, field

from forks import Run, runs
from script_list import Script

SAME, DIFFERS, LOUD, UNSURE, TIMEOUT = "same", "DIFFERS", "LATE AND LOUD", "NOT DETERMINISTIC", "TIMEOUT"
ORDER = (SAME, DIFFERS, LOUD, UNSURE, TIMEOUT)


@dataclass
class Verdict:
    """What came out for one script."""

    script: Script
    verdict: str
    compiled: Run
    plain: Run
    differing: list[int] = field(default_factory=list)

    @property
    def served(self):
        return any(from_memory(text) for text in self.compiled.explained)

    def line(self):
        """Return one line for the table."""
        word = "" if self.script.changes else ("SERVED" if self.served else "not served")
        told = " | ".join(dict.fromkeys(self.compiled.explained[-2:]))
        told = self.compiled.ended or (self.compiled.raised[2] if self.verdict == LOUD else told)
        times = f"{self.plain.seconds:4.1f} {self.compiled.seconds:4.1f} s"
        return f"{self.script.name:44} {self.verdict:17} {word:10} {times}  {told[:110]}"

    def details(self):
        """Yield lines about the first and the last record that differs."""
        if self.verdict == SAME:
            return
        plain, compiled = told(self.plain), told(self.compiled)
        yield f"{len(self.differing)} of {len(plain)} records differ, first {self.differing[:8]}"
        for at in dict.fromkeys(self.differing[:1] + self.differing[-1:]):
            yield f"plain    {at}: {plain[at][:200] if at < len(plain) else '(no record)'}"
            yield f"compiled {at}: {compiled[at][:200] if at < len(compiled) else '(no record)'}"
        yield from (line for run in (self.plain, self.compiled) for line in run.trace.splitlines()[-6:])
        yield from self.compiled.printed.splitlines()[-4:]


def verdicts(scripts, jobs):
    """Yield a verdict for each script, as they come."""
    found = {}
    tasks = [((s.name, arm), s, arm == "compiled") for s in scripts for arm in ("plain", "again", "compiled")]
    by_name = {s.name: s for s in scripts}
    for (name, arm), run in runs(tasks, jobs):
        arms = found.setdefault(name, {})
        arms[arm] = run
        if len(arms) == 3:
            yield verdict(by_name[name], **found.pop(name))


def verdict(script, plain, again, compiled):
    """Compare two plain runs with one another, and the compiled one with them."""
    first, second = told(plain), told(compiled)
    differing = [at for at in range(max(len(first), len(second))) if first[at : at + 1] != second[at : at + 1]]
    if plain.ended or again.ended or first != told(again):
        word = TIMEOUT if "no end" in plain.ended + again.ended else UNSURE
    elif not differing:
        word = SAME
    elif "no end" in compiled.ended:
        word = TIMEOUT
    else:
        word = LOUD if loud(script, compiled) else DIFFERS
    return Verdict(script, word, compiled, plain, differing)


def told(run):
    """Return all records of a run, with how it ended."""
    ends = [f"raised {run.raised[1]}: {run.raised[2]}"] if run.raised else []
    return run.records + ends + ([run.ended] if run.ended else [])


def loud(script, run):
    """Tell whether a run ended by an error of flatout's that names batches and an attribute."""
    if run.raised is None or run.raised[0].split(".")[0] != "flatout":
        return False
    message = run.raised[2]
    named = any(re.search(rf"\b{re.escape(name)}\b", message) for name in script.attributes)
    return "batch" in message and re.search(r"\d", message) is not None and (named or not script.attributes)


def from_memory(text):
    """Tell by what `explain()` says whether batches were made of what is kept."""
    if text.startswith(("left as it is", "handed back", "explain raised")):
        return False
    counts = [
        int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:batch(?:es)? |samples? )?came from", text)
    ]
    return bool(counts) and max(counts) > 0
