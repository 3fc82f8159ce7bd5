"""The planted suite says of itself what is true: its files, marks, causes and intervals."""

import pytest
from benchmarks import planted

from flatout.rules.core.catalog import catalog

SCRIPTS = planted.read_truth()
FLAWED = [script for script in SCRIPTS if script.kind == "flawed"]
HEALTHY = [script for script in SCRIPTS if script.kind == "healthy"]


def diagnosis(*phases: str) -> dict:
    return {"breakdown": [{"phase": phase, "share": 0.5} for phase in phases]}


def found(phase: str, max_speedup: float) -> dict:
    return {"phase": phase, "max_speedup": max_speedup}


def sources(folder: str) -> set:
    return set((planted.SUITE / folder).rglob("*.py"))


def test_the_suite_is_as_wide_as_the_readme_says() -> None:
    assert len(FLAWED) >= 80
    assert len(HEALTHY) >= 30
    assert sum(len(script.causes) == 2 for script in FLAWED) >= 10


@pytest.mark.parametrize("folder", ["flawed", "repaired", "healthy"])
def test_every_file_belongs_to_a_script_and_every_script_has_files(folder: str) -> None:
    of_folder = HEALTHY if folder == "healthy" else FLAWED
    assert all(script.files(folder) for script in of_folder)
    assert {path for script in of_folder for path in script.files(folder)} == sources(folder)


@pytest.mark.parametrize("script", FLAWED, ids=lambda script: script.name)
@pytest.mark.slow
def test_lines_are_marked_exactly_where_a_line_is_asked_for(script: planted.Script) -> None:
    for cause in script.causes:
        assert bool(script.marked_lines(cause)) or not cause.line


@pytest.mark.parametrize("folder", ["repaired", "healthy"])
def test_only_flawed_scripts_have_marks(folder: str) -> None:
    assert not [path for path in sources(folder) if planted.MARK in path.read_text()]


@pytest.mark.parametrize("script", FLAWED, ids=lambda script: script.name)
@pytest.mark.slow
def test_a_twin_differs_from_its_script_by_more_than_marks(script: planted.Script) -> None:
    def bare(folder: str) -> str:
        text = "\n".join(path.read_text() for path in script.files(folder))
        return text.replace(f"  {planted.SECOND_MARK}", "").replace(f"  {planted.MARK}", "")

    assert bare("flawed") != bare("repaired")


def test_codes_are_those_of_rules_and_two_causes_never_share_a_phase() -> None:
    known = {rule.code for rule in catalog()}
    for script in FLAWED:
        assert known.issuperset(code for cause in script.causes for code in cause.codes)
        phases = [phase for cause in script.causes for phase in cause.phases]
        assert len(phases) == len(set(phases))


@pytest.mark.parametrize(
    ("right", "n", "interval"),
    [(63, 63, (0.025 ** (1 / 63), 1.0)), (9, 10, (0.554984, 0.997471)), (0, 10, (0.0, 0.308498))],
)
def test_the_interval_of_a_share_is_exact(right: int, n: int, interval: tuple[float, float]) -> None:
    assert planted.exact_interval(right, n) == pytest.approx(interval, abs=1e-5)


def test_two_shares_of_the_step_add_up() -> None:
    both = [found("input", 2.0), found("host", 1.25)]
    assert planted.together(both, diagnosis("input", "host", "forward")) == pytest.approx(1 / (1 - 0.5 - 0.2))


def test_what_happens_between_steps_multiplies() -> None:
    both = [found("input", 2.0), found("validation", 1.25)]
    assert planted.together(both, diagnosis("input", "forward")) == pytest.approx(2.5)
