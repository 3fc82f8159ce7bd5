"""Why nothing was measured, or how the script failed: a fact, what it means, what to do."""

import re
import shutil
from pathlib import Path
from statistics import fmean

from flatout.engine.process.launch import Outcome
from flatout.engine.process.target import Target
from flatout.errors import FlatoutError, NothingMeasured, ScriptFailed, UsageError
from flatout.schema.run import Run

__all__ = ["explain_nothing", "script_failure", "shown_tail"]

_TAIL_LINES = 25
_USAGE = 2  # the exit code of argparse, click and others for arguments that they do not know
_TRACEBACK = re.compile(r"((?:\[rank\d+\]: ?)?)Traceback \(most recent call last\)")
_SHOWN = 80  # characters of an error by which its traceback is found
_ROOM_BYTES = 64 * 1024
_MUCH_FOREIGN = 0.5  # cores


def shown_tail(log: Path, num_lines: int = _TAIL_LINES, error: str = "") -> str:
    """Return the last traceback in a log, or its last lines; with `error`, the first traceback that ends with it.

    Torch writes the rank before each line of a traceback of several ranks: the lines of one are shown without.
    """
    try:
        lines = log.read_bytes()[-64_000:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    found = (_traceback(lines, start) for start in starts if error)
    shown = next(
        (block for block in found if block[-1].startswith(error[:_SHOWN]) or error.startswith(block[-1])), None
    )
    if shown is None:
        shown = lines[starts[-1] :] if starts else lines
    return "\n".join(shown[-num_lines:] if len(shown) > num_lines * 2 else shown[: num_lines * 2])


def _traceback(lines: list[str], start: int) -> list[str]:
    """Return the lines of the traceback that begins at `start`, those of one rank without its prefix."""
    begin = _TRACEBACK.match(lines[start])
    assert begin is not None
    prefix = begin.group(1)
    own = [line.removeprefix(prefix) for line in lines[start:] if line.startswith(prefix)]
    ended = (number for number, line in enumerate(own) if number and line[:1].strip())  # the first that is not indented
    return own[: next(ended, len(own) - 1) + 1]


def script_failure(target: Target, folder: Path, run: Run | None, outcome: Outcome) -> FlatoutError | None:
    """Return the script's own failure, or None when it did what it should."""
    stopped = run is not None and run.end.reason in ("steps", "probe failed")
    if stopped or outcome.stopped_by or not outcome.exit_code:
        return None
    full = _full_disk(folder, run)
    if full is not None:
        return full
    code = outcome.exit_code
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    steps = len(run.steps) if run is not None else 0
    failed = ScriptFailed(
        f"{target.name} {how} after {steps} steps.",
        shown_tail(folder / "output-timed.log", error=run.end.error if run is not None else ""),
        "Run it without flatout to see whether it fails there too."
        if code > 0
        else "The machine may have run out of memory: see the system log.",
    )
    failed.refused_its_arguments = code == _USAGE and not steps
    return failed


def explain_nothing(target: Target, folder: Path, run: Run | None, outcome: Outcome) -> FlatoutError:
    """Return the error for an execution in which no step was seen."""
    parts = folder / "parts"
    full = _full_disk(folder, run)
    if full is not None:
        return full
    if outcome.launch_error:
        return NothingMeasured(f"{target.command[0]} could not be started ({outcome.launch_error}).")
    failure = script_failure(target, folder, run, outcome)
    if failure is not None:
        return failure
    failed = sorted(parts.glob("failed-*.txt"))
    if failed:
        return NothingMeasured(
            f"flatout could not attach to {target.name}.", f"The reason is in {failed[0]}.", "Please report it."
        )
    if not any(parts.glob("python-*")):
        return NothingMeasured(
            f"flatout could not attach to {target.name}: no Python process that it can observe was started.",
            "It attaches through PYTHONPATH, which python -S, -I and -E and frozen programs ignore,"
            " and which a launcher may overwrite.",
            "Start the script without those options, and do not overwrite PYTHONPATH.",
        )
    return _attached_but_nothing(target, folder, run, outcome)


def _full_disk(folder: Path, run: Run | None) -> FlatoutError | None:
    """Return what to say of a recording that ends where its disk was full."""
    try:
        room = shutil.disk_usage(folder).free
    except OSError:
        return None
    if room >= _ROOM_BYTES or (run is not None and run.end.reason != "killed"):
        return None
    return UsageError(
        f"The disk of {folder} is full: {room} bytes are left.",
        f"The recording ends after {len(run.steps) if run is not None else 0} steps.",
        "Free some space, or give another folder with --out.",
    )


def _busy(outcome: Outcome) -> str:
    """Return how much of the machine other programs used meanwhile; "" where that was little."""
    foreign = fmean(sample.foreign_cpu for sample in outcome.utilization) if outcome.utilization else 0.0
    if foreign < _MUCH_FOREIGN:
        return ""
    return f" Other programs used {foreign:.1f} cores meanwhile: on an idle machine it starts sooner."


def _attached_but_nothing(target: Target, folder: Path, run: Run | None, outcome: Outcome) -> FlatoutError:
    seconds = f"{outcome.wall_s:.0f} s"
    if run is None:
        return NothingMeasured(
            f"{target.name} never imported torch in {seconds}.",
            "flatout measures PyTorch training.",
            f"Its output is in {folder / 'output-timed.log'}.",
        )
    if outcome.stopped_by == "budget":
        return NothingMeasured(
            f"{target.name} made no optimizer step in {seconds}.",
            f"flatout measures between optimizer steps.{_busy(outcome)}",
            "If it prepares data first, give it more time: --budget 20m. "
            f"If it waits for something, see {folder / 'output-timed.log'}.",
        )
    if run.optimizers:
        return NothingMeasured(
            f"{target.name} ended after {seconds} and fewer than 3 optimizer steps.",
            "The first step counts as start-up, and a last step that has not ended does not count.",
            "Let it train longer.",
        )
    return NothingMeasured(
        f"{target.name} ended after {seconds} without an optimizer step.",
        "flatout measures between optimizer steps (torch.optim; without one, between calls of backward() or grad()).",
        f"Check its arguments; its output is in {folder / 'output-timed.log'}.",
    )
