"""The training loop prints, logs, draws or writes a file in every step.

## What it measures

Host time in lines that meet one of three conditions: they call something that writes (`print`, `logger.info`,
`add_scalar`, `json.dump`, `savefig`, `tqdm.write`, `writerow`), read from the source of the script; they stand in a
function named for it (`log`, `print`, `plot`, `report`, `dump`, `write`); or they run inside a logging library. It
fires at 5% of the step.

## Why it matters

Nobody reads a thousand lines a minute, and each waits for a terminal, a disk or a server. Writing with `flush` or
`fsync`, reopening the file and drawing a figure cost milliseconds.

## What to do

Log every N steps. Collect values on the device and write once an epoch. Keep files open; leave flushing to the system.
`flatout tune` tries `buffered-files`, which writes the script's text files half a second after each flush, and
`kept-json`, which makes no text again of what was written as JSON before.

## When it is wrong

A line that both computes and writes is counted whole, and so is a function that is named for writing. When the source
has changed since the recording, the wrong lines may be classified as writing.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.host_python import writing
from flatout.rules.facts.user_lines import costs, hottest, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """HO002: writing takes a twentieth of the step."""
    lines, host = writing(run), costs(run, Phase.HOST)
    spot = hottest(lines, among=host)
    if spot is None:
        return None
    share = breakdown.share(Phase.HOST) * min(1.0, seconds(lines) / seconds(host))
    if share < MIN_SHARE:
        return None
    return Finding(
        code="HO002",
        name="logging-every-step",
        phase=Phase.HOST,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent printing, logging or writing files, mostly "
        f"in {within(spot)} ({spot.samples} stack samples). Do it every N steps.",
        evidence=(
            Evidence("cost in each step", share * breakdown.mean_ms, "ms"),
            Evidence("share of the host time", seconds(lines) / seconds(host), ""),
            Evidence("stack samples", spot.samples, ""),
        ),
        fixes=("buffered-files", "kept-json"),
    )


_WRITE = ("train.py", 61, "log_step")
_LINES = (
    line(1.0, _WRITE, ("train.py", 44, "train"), phase=Phase.HOST, part="tail"),
    line(0.2, ("train.py", 45, "train"), phase=Phase.HOST, part="tail"),
)
_IN_LIBRARY = (line(1.0, ("train.py", 44, "train"), phase=Phase.HOST, part="tail", leaf="tensorboard"),)

RULE = Rule(
    code="HO002",
    name="logging-every-step",
    check=check,
    edits=(("log-level",),),
    settings={
        "lightning": "`Trainer(log_every_n_steps=50)`, and `self.log(..., on_step=False)`",
        "transformers": "`TrainingArguments(logging_steps=50)`",
    },
    fires_on=(
        example(step_ms=50, forward=20, backward=20, lines=_LINES),
        example(step_ms=50, forward=20, backward=27, lines=_IN_LIBRARY),
    ),
    quiet_on=(
        example(step_ms=50, forward=20, backward=27.1, lines=_LINES),
        example(step_ms=50, forward=20, lines=[line(1.0, ("train.py", 44, "train"), phase=Phase.HOST, leaf="numpy")]),
        example(step_ms=50, forward=20, lines=[line(0.07, _WRITE, phase=Phase.HOST)]),
    ),
)
