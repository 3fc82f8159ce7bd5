"""`flatout demo`: the whole story on a bundled script."""

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from flatout.cli.options import STDOUT, json_option, out_option, verbose_option
from flatout.errors import ScriptFailed, UsageError
from flatout.schema.report import Report

__all__ = ["demo"]

FOLDER = Path(".flatout") / "demo"
NEEDS = {"PIL": "pillow", "numpy": "numpy"}
"""What the script imports, and the package that brings it: an extra, because only the demo needs it."""

BUDGET_S = 120.0
"""For the diagnosis and the trials together: where a start of the script takes 8 s, 90 s left no time to confirm."""

STEPS_PER_EPOCH = 23
"""Of the bundled script: 1,442 images in batches of 64."""

TRAINING_S = 10.0
FEWEST_EPOCHS, MOST_EPOCHS = 2, 20
"""The script as it is shall train for about so long afterwards, within these bounds."""

LONGEST_S = 300.0


@dataclass(frozen=True, slots=True)
class Training:
    """One training from start to end: the command as people type it, how long it took, the last line it printed."""

    command: str
    wall_s: float
    last_line: str


@click.command()
@json_option
@out_option
@verbose_option("Show the script's own output, and every trial and finding with its numbers.")
def demo(json_file: Path | None, out: Path | None, verbose: bool) -> None:
    """Diagnose, tune and train a bundled script.

    It is ordinary in every way and trains on real images; a copy of it is put into .flatout/demo.
    """
    from flatout.cli.tune import PATIENCE, tune_and_present
    from flatout.report.expected import whole_of
    from flatout.units import format_ratio

    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"The demo's script imports {' and '.join(missing)}, which is not installed.",
            advice="pip install 'flatout[demo]'",
        )
    script = copy_script(FOLDER)
    recipe = FOLDER / "flatout.toml"
    recipe.unlink(missing_ok=True)
    click.echo(f"flatout: the script is {script}", err=True)
    report = tune_and_present(
        (str(script),),
        budget_s=BUDGET_S,
        patience=PATIENCE,
        recipe_file=recipe,
        json_file=json_file,
        out=out,
        verbose=verbose,
    )
    if report is None or not recipe.exists():
        return
    num_epochs = _num_epochs(report)
    words = (script.name, "--epochs", str(num_epochs))
    trainings = [
        train(f"python {' '.join(words)}", words, verbose=verbose),
        train(f"flatout run {' '.join(words)}", ("-m", "flatout", "run", *words), verbose=verbose),
    ]
    whole = whole_of(report.recipe) if report.recipe is not None else None
    expected = f" (expected of {num_epochs} epochs: {format_ratio(whole.speedup(num_epochs))})" if whole else ""
    _compare(trainings, expected, err=json_file == STDOUT)
    _name_page(report, err=json_file == STDOUT)


def _num_epochs(report: Report) -> int:
    """Return how many epochs the script as it is trains for in about `TRAINING_S`, going by its measured step."""
    epoch_s = report.breakdown.mean_ms * STEPS_PER_EPOCH / 1000
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, round(TRAINING_S / epoch_s) if epoch_s > 0 else FEWEST_EPOCHS))


def train(command: str, words: Sequence[str], *, verbose: bool) -> Training:
    """Run Python with `words` in the demo's folder, where its checkpoint overwrites nobody's; time it.

    Raises:
        ScriptFailed: it did not end well.
    """
    click.echo(f"flatout: {command}", err=True)
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=FOLDER, capture_output=True, timeout=LONGEST_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ScriptFailed(f"{command} did not end within {LONGEST_S:.0f} s.", f"It ran in {FOLDER}.") from None
    wall_s = time.monotonic() - start
    told, errors = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    if verbose:
        click.echo(told + errors, err=True, nl=False)
    if done.returncode:
        raise ScriptFailed(f"{command} ended with exit code {done.returncode}.", "\n".join(errors.splitlines()[-8:]))
    return Training(command, wall_s, (told.splitlines() or [""])[-1])


def _compare(trainings: Sequence[Training], expected: str, *, err: bool) -> None:
    """Print both trainings below each other, and what was expected of the second."""
    from flatout.report.visible import visible
    from flatout.units import format_ratio, format_seconds

    width = max(len(each.command) for each in trainings)
    before, after = trainings[0].wall_s, trainings[-1].wall_s
    click.echo(f"\nTrained in {FOLDER}, from start to end, once each:", err=err)
    for each in trainings:
        factor = f"  {format_ratio(before / after)} as fast{expected}" if each is trainings[-1] else ""
        click.echo(f"  {each.command:<{width}}  {format_seconds(each.wall_s):>7}{factor}", err=err)
        click.echo(f"    {visible(each.last_line)}", err=err)


def _name_page(report: Report, *, err: bool) -> None:
    """Print where the report lies, when it could be written."""
    from flatout.report.html.page import REPORT_PAGE

    page = Path(report.folder) / REPORT_PAGE
    if page.exists():
        click.echo(f"\nThe whole report, for a browser: {page}", err=err)


def copy_script(folder: Path) -> Path:
    """Copy the bundled script and its data to `folder`, where it can be read and changed; return the copy.

    Raises:
        UsageError: the folder cannot be written.
    """
    from flatout.demo import script

    bundled = script()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy = Path(shutil.copy(bundled, folder))
        if (bundled.parent / "data").is_dir():
            shutil.copytree(bundled.parent / "data", folder / "data", dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}.",
            "The demo copies its script there, so that you can look at it and change it.",
            "Run it in a folder of yours.",
        ) from None
    return copy
