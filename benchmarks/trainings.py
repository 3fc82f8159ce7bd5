"""Whole trainings of one script and its variants, in rounds, and what flatout makes of them: for the end-to-end tables.

A script says its losses ("loss 0.1"), the seconds from its first to its last step ("last step: 1.2 s") and, where it
likes, images a second ("12.3 images/s"); it saves its weights.
"""

import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from flatout.machine import processor_name

PLAIN = "python train.py"
Change = tuple[str, str]


@dataclass
class Trainings:
    """The trainings of one variant: total seconds, seconds from first to last step, losses, weights of the last."""

    total_s: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # images a second, of the last epoch
    losses: list[list[str]] = field(default_factory=list)
    weights: list[dict[str, torch.Tensor]] = field(default_factory=list)


def where(what: str, rounds: int, device: str = "") -> str:
    """Return what is measured and on which machine."""
    return (
        f"{what}, {device or processor_name()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, Python {platform.python_version()}, torch {torch.__version__}, "
        f"torchvision {version('torchvision')}; n={rounds} trainings each, in rounds: medians, in brackets the range"
    )


def step_ms(command: Sequence[str], folder: Path | str) -> float:
    """Run one whole training that says "step_ms 1.2" and return that."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.search(r"step_ms ([\d.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(found[1])


def tell(lines: Sequence[str], out: Path | None) -> None:
    """Print the text, and write it to `out` where that is given."""
    print("\n".join(lines))
    note(lines, out)


def note(lines: Sequence[str], out: Path | None) -> None:
    """Write the text to `out` where that is given."""
    if out is not None:
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_variants(text: str, folder: Path, changes: Mapping[str, Sequence[Change]]) -> dict[str, list[str]]:
    """Write the user's script and variants of it changed by hand; return the command of each."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    commands = {PLAIN: [sys.executable, "train.py"]}
    for place, (name, pairs) in enumerate(changes.items()):
        (folder / f"by_hand_{place}.py").write_text(changed(text, pairs, name), encoding="utf-8")
        commands[name] = [sys.executable, f"by_hand_{place}.py"]
    return commands


def changed(text: str, pairs: Sequence[Change], name: str) -> str:
    for old, new in pairs:
        if old not in text:
            raise SystemExit(f"the script has no line {old!r} any more: {name} cannot be made of it")
        text = text.replace(old, new)
    return text


def tune(
    folder: Path,
    equal: str,
    budget: str,
    script: str = "train.py",
    also: str = "",
    only: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> tuple[str, list[dict[str, Any]]]:
    """Tune the script for one class of equality, `also` being a fix that is tried on request; say what was kept.

    `only`: the fixes that may be tried, all where none is named; `arguments`: those of the script while it is tuned.
    """
    recipe = recipe_of(equal, script, also)
    command = [sys.executable, "-m", "flatout", "tune", "--budget", budget, "--equal", equal, "--recipe", recipe]
    command += ["--also", also] if also else []
    command += [word for name in only for word in ("--only", name)]
    start = time.monotonic()
    done = subprocess.run([*command, script, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    asked = " ".join([f"--equal {equal}", *([f"--also {also}"] if also else []), *(f"--only {name}" for name in only)])
    said = f"flatout tune {asked} {' '.join([script, *arguments])}, {time.monotonic() - start:.0f} s:\n{done.stdout}"
    said += done.stderr[-2000:] if done.returncode else ""
    found = folder / recipe
    return said, tomllib.loads(found.read_text(encoding="utf-8")).get("fix", []) if found.exists() else []


def recipe_of(equal: str, script: str = "train.py", also: str = "") -> str:
    return f"{Path(script).stem}-{equal}{f'-{also}' if also else ''}.toml"


def run_command(folder: Path, equal: str, script: str = "train.py", also: str = "") -> list[str]:
    """Return the command under the recipe; the plain one where there is none."""
    recipe = recipe_of(equal, script, also)
    run = [sys.executable, "-m", "flatout", "run", "--recipe", recipe, script]
    return run if (folder / recipe).exists() else [sys.executable, script]


def in_rounds(
    commands: Mapping[str, list[str]],
    folder: Path,
    rounds: int,
    saved: str = "weights.pt",
    into: Mapping[str, Trainings] | None = None,
) -> dict[str, Trainings]:
    """Run every variant once a round; the trainings are added to those that are in `into`."""
    variants = dict(into or {name: Trainings() for name in commands})
    for _ in range(rounds):
        for name, command in commands.items():
            _train(command, folder, folder / saved, variants[name])
    return variants


def _train(command: list[str], folder: Path, saved: Path, into: Trainings) -> None:
    saved.unlink(missing_ok=True)
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    total_s = time.monotonic() - start
    steps = re.search(r"last step: ([\d.]+) s", done.stdout)
    if steps is None or not saved.exists():
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    into.total_s.append(total_s)
    into.steps_s.append(float(steps[1]))
    into.rates += [float(rate) for rate in re.findall(r"([\d.]+) images/s", done.stdout)[-1:]]
    into.losses.append(re.findall(r"loss ([^\s,]+)", done.stdout))
    into.weights.append(torch.load(saved, weights_only=True, map_location="cpu"))


def equality(trainings: Trainings, plain: Trainings) -> str:
    """Return how losses and weights of all trainings compare with the first plain one's."""
    losses, weights = plain.losses[0], plain.weights[0]
    if all(each == losses for each in trainings.losses) and all(
        torch.equal(_bits(other[key]), _bits(weights[key])) for other in trainings.weights for key in weights
    ):
        return "losses and weights the same to the last bit"
    furthest = max(
        abs(float(one) / float(two) - 1)
        for other in trainings.losses
        for one, two in zip(other, losses, strict=True)
    )  # fmt: skip
    return f"losses differ by up to {furthest:.1e}" if math.isfinite(furthest) else "losses are not finite"


def _bits(weight: torch.Tensor) -> torch.Tensor:
    return weight.contiguous().view(-1).view(torch.uint8)


def ratio(one: list[float], other: list[float]) -> float:
    """Return the median of `one / other` within rounds."""
    return statistics.median(left / right for left, right in zip(one, other, strict=True))


def ratios(one: list[float], other: list[float]) -> str:
    """Return the median of `one / other` within rounds, and its range."""
    found = [left / right for left, right in zip(one, other, strict=True)]
    return f"{ratio(one, other):5.2f}x ({min(found):.2f} to {max(found):.2f})"


def table(variants: dict[str, Trainings], unequal: Sequence[str]) -> list[str]:
    """Return one line a variant; `unequal`: those whose losses need not be the plain ones'."""
    plain = variants[PLAIN]
    rated = f"{'images/s':>10}" if plain.rates else ""
    lines = [f"{'':38}{'total s':>9}{'steps s':>9}{rated}  {'steps, x plain':26}{'total, x plain':24}"]
    for name, each in variants.items():
        same = "" if name in unequal else f"  {equality(each, plain)}"
        rate = f"{statistics.median(each.rates):10.0f}" if each.rates else ""
        lines.append(
            f"{name:38}{statistics.median(each.total_s):9.2f}{statistics.median(each.steps_s):9.2f}{rate}  "
            f"{ratios(plain.steps_s, each.steps_s):26}{ratios(plain.total_s, each.total_s):24}{same}"
        )
    return lines


def kept_names(kept: list[dict[str, Any]]) -> str:
    """Return the names of the fixes that a tune kept."""
    names = ", ".join(f"{fix['name']} ({fix['equivalence']})" for fix in kept)
    return names or "nothing: its trainings are the plain ones"


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"
