"""The pytest fixture `flatout_step_time`: a test that fails when a training's steps became slower.

pytest loads this module by itself wherever flatout is installed, so nothing is imported here before it is used.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flatout.schema.difference import Difference
    from flatout.schema.report import Report

__all__ = ["StepTime", "flatout_step_time", "pytest_addoption"]

FOLDER = "flatout-baselines"
"""Beside the test's file; it is meant to be kept with the code."""

_MACHINE = ("device", "devices", "cores", "CPU")
"""Where one of these differs, the baseline says nothing about the code."""

_LEAST_LIMIT = 0.01


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--flatout-update`."""
    group = parser.getgroup("flatout", "step times of trainings")
    group.addoption("--flatout-update", action="store_true", help="record new baselines for flatout_step_time")


class StepTime:
    """What the fixture gives to a test: call it with the function that trains."""

    def __init__(self, baseline: Path, now: Path, *, update: bool) -> None:
        """Take the folder of the baseline, the one for what is recorded now, and whether to make the baseline anew."""
        self._baseline = baseline
        self._now = now
        self._update = update

    def __call__(
        self, train: Callable[[], object], *, limit: float = 0.2, repeats: int = 5, name: str = "steps"
    ) -> "Difference":
        """Train `repeats` times and fail where the step is slower than the baseline's by more than `limit`.

        Without a baseline, one is written and the test is skipped; so is it where the baseline is of another machine,
        or where noise hides a slow-down of `limit` (0.2: 20 %). All repeats share this process, so 3 % are added for
        what another process and another day do; `flatout compare` tells smaller differences. `name` tells several
        trainings of one test apart. With `--flatout-update` the baseline is written, and nothing is held to it.

        Raises:
            NothingMeasured: `train` makes fewer than eight training steps after its warm-up.
            ValueError: `repeats` is not positive, `limit` is below 1 %, or `name` is no name of a folder.
        """
        if repeats < 1 or not limit >= _LEAST_LIMIT or not re.fullmatch(r"[\w-]+", name):
            raise ValueError(f"repeats={repeats} must be at least 1, limit={limit} at least 0.01, name={name!r} a word")
        recorded = [self._record(train, self._now / name) for _ in range(repeats)]
        kept = self._baseline / name
        if self._update:
            _keep(self._now / name, kept)
        elif not any(kept.glob("*.jsonl")):
            _keep(self._now / name, kept)
            pytest.skip(f"the baseline was recorded: {kept}")
        return _judge(_read(kept), recorded, limit, kept)

    def _record(self, train: Callable[[], object], folder: Path) -> "Report":
        from flatout.analysis.difference import FEWEST_STEPS
        from flatout.errors import NothingMeasured
        from flatout.inside.recording import recording

        with recording(folder) as run:
            train()
        number = len(run.concluded.breakdown.step_ms)
        if number < FEWEST_STEPS:
            raise NothingMeasured(
                f"{number} steady steps were recorded, fewer than {FEWEST_STEPS}.",
                "So few steps do not show how much they scatter.",
                "Train for longer.",
            )
        return run.concluded


@pytest.fixture
def flatout_step_time(request: pytest.FixtureRequest, tmp_path: Path) -> StepTime:
    """Return what measures a training against its stored baseline: `flatout_step_time(train, limit=0.2)`."""
    baseline = request.path.parent / FOLDER / request.path.stem / _folder_name(request.node.nodeid)
    return StepTime(baseline, tmp_path / FOLDER, update=request.config.getoption("--flatout-update"))


def _folder_name(node: str) -> str:
    """Return a folder's name for one test: its class and name, and a hash where a character had to go."""
    test = node.partition("::")[2] or node
    plain = re.sub(r"[^\w-]+", "-", test).strip("-")
    return plain if plain == test else f"{plain[:80]}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"


def _keep(recorded: Path, baseline: Path) -> None:
    """Store what was recorded as the baseline, in place of the one before."""
    files = sorted(recorded.glob("*/*/run.jsonl"))
    if not files:
        pytest.skip(f"no baseline could be recorded below {recorded}: is the disk full?")
    shutil.rmtree(baseline, ignore_errors=True)
    baseline.mkdir(parents=True)
    for number, file in enumerate(files, start=1):
        shutil.copy(file, baseline / f"{number}.jsonl")


def _read(baseline: Path) -> "list[Report]":
    from flatout.engine.diagnose import conclude
    from flatout.schema.codec import read_run

    return [conclude(read_run(file), file.parent) for file in sorted(baseline.glob("*.jsonl"))]


def _judge(before: "Sequence[Report]", after: "Sequence[Report]", limit: float, baseline: Path) -> "Difference":
    """Return the difference where it is within the limit; fail or skip with the page of it where it is not."""
    from flatout.analysis.difference import ASSUMED, difference, judge_limit
    from flatout.report.difference import difference_text
    from flatout.report.layout import Look

    found = difference(before, after, shared=ASSUMED)
    gate = judge_limit(found, limit)
    page = difference_text(found, Look(width=100), limit=limit, gate=gate).plain
    other = [each.name for each in found.surroundings if each.name in _MACHINE]
    if other:
        pytest.skip(
            f"the baseline {baseline} is of another machine ({', '.join(other)}); --flatout-update records a new one"
        )
    if gate.passed is None:
        pytest.skip(page)
    if not gate.passed:
        pytest.fail(page, pytrace=False)
    return found
