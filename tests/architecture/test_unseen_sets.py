"""Every set of unseen scripts says of itself what is true: its files, marks, patches, styles."""

import ast
from pathlib import Path

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")  # as for a script that lies there
    import planted_suite
    import unseen

SETS = sorted(unseen.SETS.glob("set_*"))
WIDTHS = {"set_4": (20, 8)}  # flawed and healthy scripts of smaller sets
pytestmark = pytest.mark.parametrize("home", SETS, ids=lambda home: home.name)


def scripts(home: Path, kind: str) -> list:
    return [script for script in planted_suite.read_truth(home) if script.kind == kind]


def test_a_set_is_as_wide_as_is_said(home: Path) -> None:
    flawed, healthy = WIDTHS.get(home.name, (40, 15))
    assert len(scripts(home, "flawed")) >= flawed
    assert len(scripts(home, "healthy")) >= healthy


@pytest.mark.parametrize("kind", ["flawed", "healthy"])
def test_every_file_belongs_to_a_script_and_every_script_has_files(home: Path, kind: str) -> None:
    files = [script.files(script.home) for script in scripts(home, kind)]
    assert all(files)
    assert {path for each in files for path in each} == set((home / kind).rglob("*.py"))


def test_every_flawed_script_has_a_patch_that_applies_and_takes_the_marks_out(home: Path) -> None:
    flawed = scripts(home, "flawed")
    assert {script.repair for script in flawed} == set((home / "repairs").iterdir())
    for script in flawed:
        twin = script.twin()
        assert all(ast.parse(text) for text in twin.values())
        assert planted_suite.MARK.encode() not in b"".join(twin.values())


def test_lines_are_marked_exactly_where_a_line_is_asked_for(home: Path) -> None:
    for script in scripts(home, "flawed"):
        assert bool(script.marked_lines(script.causes[0])) == script.causes[0].line
    assert not [path for path in (home / "healthy").rglob("*.py") if planted_suite.MARK in path.read_text()]


def judged(**changes: object) -> dict:
    return {"phase": True, "line": True, "silent": False, "error": 0.1, "alarms": 0, **changes}


def test_figures_count_what_can_be_judged(home: Path) -> None:
    flawed, healthy = scripts(home, "flawed")[:4], scripts(home, "healthy")[:3]
    verdicts = [
        judged(),
        judged(phase=False, line=None),
        judged(line=False, error=0.5),
        judged(silent=True, error=None),
    ]
    alarms = [judged(alarms=number) for number in (0, 2, None)]
    found = unseen.figures(dict(zip([*flawed, *healthy], [*verdicts, *alarms], strict=True)))
    assert {metric: value[:2] for metric, value in found.items()} == {
        "right phase first": (75.0, 4),
        "right line within the first two findings": (pytest.approx(66.7, abs=0.1), 3),
        "nothing found": (25.0, 4),
        "healthy scripts with a finding of 10% or more": (1, 2),
        "error of the promise, median": (pytest.approx(10.0), 3),
        "error of the promise, 90th percentile": (pytest.approx(42.0), 3),
    }
