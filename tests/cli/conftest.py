"""A fake engine, golden transcripts, and a terminal of 80 columns."""

import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.report.specimens import ordinary, tuned

from flatout.engine.progress import Progress

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption(
        "--update", action="store_true", help="write the golden transcripts anew (pytest tests/cli --update)"
    )


@dataclass
class FakeEngine:
    """Stands in for `flatout.engine.diagnose`: notes what it was asked, and ends as it is told."""

    result: object = None
    error: BaseException | None = None
    output: bytes = b""
    progress: tuple[Progress, ...] = (
        Progress("starting", 0, 0.0, None),
        Progress("measuring", 10, 0.2, 20.0),
        Progress("measuring", 60, 0.6, 9.0),
        Progress("looking for causes", 80, 0.9, 2.0, note="deep run"),
    )
    calls: list[dict[str, object]] = field(default_factory=list)

    def diagnose(self, target, *, limits, out, watch, echo, propose=None):
        self.calls.append({"target": target, "limits": limits, "out": out, "echo": echo})
        for moment in self.progress:
            watch(moment)
        if echo is not None:
            echo(self.output)
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(frozen=True)
class Limits:
    steps: int | None
    budget_s: float
    headroom: bool


@pytest.fixture
def engine(monkeypatch, project):
    fake = FakeEngine(result=ordinary())
    module = types.ModuleType("flatout.engine.diagnose")
    module.diagnose = fake.diagnose
    module.Limits = Limits
    monkeypatch.setitem(sys.modules, "flatout.engine.diagnose", module)
    return fake


@dataclass(frozen=True)
class TuneLimits:
    budget_s: float
    patience: float
    only: frozenset[str]
    also: frozenset[str]
    equal: str
    edits: tuple[object, ...] = ()


@pytest.fixture
def search(monkeypatch, project):
    """Stand in for `flatout.engine.tune`, which returns the report of a tune that kept three fixes."""
    fake = FakeEngine(result=tuned())
    module = types.ModuleType("flatout.engine.tune")
    module.tune = fake.diagnose
    module.TuneLimits = TuneLimits
    monkeypatch.setitem(sys.modules, "flatout.engine.tune", module)
    return fake


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a script in it, and the recording's folder, as the working folder."""
    (tmp_path / "train.py").write_text("print('training')\n", encoding="utf-8")
    (tmp_path / ordinary().folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def golden(request):
    """Compare a transcript with the file of that name, or write it with `--update`."""

    def check(name, transcript):
        file = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update", default=False):
            file.write_text(transcript, encoding="utf-8")
        assert transcript == file.read_text(encoding="utf-8")

    return check
