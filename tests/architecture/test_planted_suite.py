"""The planted suite says of itself what is true: its files, marks, patches, causes and intervals."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.rules.core.catalog import catalog

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")  # as for a script that lies there
    import planted
    import planted_suite
    import planted_twins

SCRIPTS = planted_suite.read_truth()
FLAWED = [script for script in SCRIPTS if script.kind == "flawed"]
HEALTHY = [script for script in SCRIPTS if script.kind == "healthy"]


def diagnosis(*phases: str) -> dict:
    return {"breakdown": [{"phase": phase, "share": 0.5} for phase in phases]}


def found(phase: str, max_speedup: float) -> dict:
    return {"phase": phase, "max_speedup": max_speedup}


def sources(folder: str) -> set:
    return set((planted_suite.SUITE / folder).rglob("*.py"))


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The repaired scripts as files, laid out as the flawed ones are."""
    folder = tmp_path_factory.mktemp("twins")
    for script in FLAWED:
        planted_twins.write(script, folder)
    return folder


def test_the_suite_is_as_wide_as_the_readme_says() -> None:
    assert len(FLAWED) >= 80
    assert len(HEALTHY) >= 30
    assert sum(len(script.causes) == 2 for script in FLAWED) >= 10


@pytest.mark.parametrize("kind", ["flawed", "healthy"])
def test_every_file_belongs_to_a_script_and_every_script_has_files(kind: str) -> None:
    of_kind = [script for script in SCRIPTS if script.kind == kind]
    assert all(script.files(script.home) for script in of_kind)
    assert {path for script in of_kind for path in script.files(script.home)} == sources(kind)


def test_every_flawed_script_has_a_patch_and_every_patch_a_script() -> None:
    assert {script.repair for script in FLAWED} == set((planted_suite.SUITE / "repairs").iterdir())


@pytest.mark.parametrize("script", FLAWED, ids=lambda script: script.name)
@pytest.mark.slow
def test_lines_are_marked_exactly_where_a_line_is_asked_for(script: planted.Script) -> None:
    for cause in script.causes:
        assert bool(script.marked_lines(cause)) or not cause.line


def test_only_flawed_scripts_have_marks() -> None:
    assert not [path for path in sources("healthy") if planted_suite.MARK in path.read_text()]
    marked = [script.name for script in FLAWED if planted_suite.MARK.encode() in b"".join(script.twin().values())]
    assert not marked


def test_every_patch_applies_and_takes_out_more_than_marks() -> None:
    for script in FLAWED:
        flawed = script.texts(script.home)
        bare = {name: planted_twins.without_marks(text) for name, text in flawed.items()}
        twin = script.twin()
        assert list(twin) == list(flawed)
        assert twin != bare
        assert all(ast.parse(text) for text in twin.values())


def test_a_patch_taken_from_a_written_twin_makes_the_same_twin(twins: Path) -> None:
    for script in FLAWED:
        again = planted_twins.repair_by(script, script.texts(twins))
        assert planted_suite.patched(script.texts(script.home), again) == script.twin()


@pytest.mark.slow
def test_git_applies_the_patches_to_the_same_twins(twins: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git")
    for script in FLAWED:
        planted_suite.write_texts(script.texts(script.home), tmp_path)
    diff = b"".join(script.repair.read_bytes() for script in FLAWED)
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(script.texts(tmp_path) == script.texts(twins) for script in FLAWED)


@pytest.mark.slow
def test_the_twins_are_held_to_what_the_flawed_scripts_are_held_to(twins: Path) -> None:
    rules = ["--isolated", "--select", "E,F", "--ignore", "E402", "--line-length", "120"]
    done = subprocess.run([sys.executable, "-m", "ruff", "check", *rules, twins], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_a_twin_replaces_no_file_and_a_patch_names_the_files_that_differ(twins: Path, tmp_path: Path) -> None:
    script = next(script for script in FLAWED if script.package)
    with pytest.raises(FileExistsError):
        planted_twins.write(script, twins)
    with pytest.raises(ValueError, match="the twin has the files none"):
        planted_twins.take(script, tmp_path)


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
