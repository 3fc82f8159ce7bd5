"""The page of figures is what goals and histories say, and every figure can be measured again."""

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from datetime import date

import pytest
from benchmarks import record as record_module

from tests.docs.pages import REPO

FIELDS = {"commit", "date", "machine", "versions", "n", "n_of", "metric", "value", "low", "high", "unit", "note"}
TABLE = tomllib.loads((REPO / "benchmarks/goals.toml").read_text(encoding="utf-8"))
HISTORIES = sorted((REPO / "benchmarks/history").glob("*.jsonl"))


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("benchmarks_page", str(REPO / "scripts/benchmarks-page"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("benchmarks_page", loader))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


def test_the_page_is_what_the_script_writes():
    words = [sys.executable, "scripts/benchmarks-page", "--check"]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_page_that_is_not_current_is_named(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "REPO", tmp_path)
    monkeypatch.setattr(script, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(sys, "argv", ["benchmarks-page", "--check"])
    assert script.main() == 1
    assert capsys.readouterr().out == "benchmarks.md is not what the histories say. Run: scripts/benchmarks-page\n"


def test_every_goal_names_a_subject_and_a_metric_that_its_history_has():
    subjects = {subject["name"] for subject in TABLE["subject"]}
    metrics = {path.stem: {row["metric"] for row in rows(path)} for path in HISTORIES}
    for goal in TABLE["goal"]:
        assert goal["subject"] in subjects
        named = {goal["metric"], *goal.get("beside", {}).values()}
        assert named <= metrics[goal["history"]], goal["what"]


def test_every_command_s_script_exists():
    for goal in TABLE["goal"]:
        command = goal.get("command", "")
        scripts = re.findall(r"\S+\.py\b", command)
        scripts += [name.replace(".", "/") + ".py" for name in re.findall(r"python -m (\S+)", command)]
        assert bool(scripts) == bool(command), command
        assert all((REPO / name).is_file() for name in scripts), command


def test_a_history_is_named_for_its_script_unless_it_has_none():
    without = {path.stem for path in HISTORIES if not (REPO / "benchmarks" / f"{path.stem}.py").exists()}
    assert without == {"documented_pipelines", "outside"}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_every_row_of_a_history_has_the_same_fields_and_they_follow_in_time(path):
    found = rows(path)
    dates = [date.fromisoformat(row["date"]) for row in found]
    assert dates == sorted(dates)
    for row in found:
        assert row.keys() == FIELDS
        assert isinstance(row["value"], int | float)
        assert (row["low"] is None) == (row["high"] is None)
        assert row["low"] is None or row["low"] <= row["value"] <= row["high"]
        assert row["commit"] is None or re.fullmatch(r"[0-9a-f]{7,}", row["commit"])


def test_a_goal_that_the_latest_figure_misses_is_marked(script):
    goal = {"at_least": 0.95, "at_most": 1.05}
    assert [value for value in (0.94, 0.95, 1.05, 1.06) if script.is_missed(goal, {"value": value})] == [0.94, 1.06]
    assert not script.is_missed({"goal": "ahead of each"}, {"value": 0})
    missed = [goal for goal in TABLE["goal"] if script.is_missed(goal, script.latest(goal))]
    assert missed
    assert all("; **goal missed**" in script.cells(goal)[2] for goal in missed)


def test_the_latest_figure_is_the_last_row(script, tmp_path, monkeypatch):
    lines = [json.dumps({"metric": metric, "value": value}) for metric, value in (("a", 1), ("b", 2), ("a", 3))]
    (tmp_path / "some.jsonl").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(script, "HISTORY", tmp_path)
    assert script.latest({"history": "some", "metric": "a"})["value"] == 3
    with pytest.raises(SystemExit, match="no row of the metric 'c'"):
        script.latest({"history": "some", "metric": "c"})


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"value": 7.42, "low": 5.74, "high": 7.92, "unit": "x"}, "7.42x (5.74 to 7.92)"),
        ({"value": 1, "n": 389, "low": None, "high": None, "unit": "of n"}, "1 of 389"),
        ({"value": 17944.2, "low": None, "high": None, "unit": "images/s"}, "17,944 images/s"),
        ({"value": 1.1, "low": None, "high": None, "unit": "% of a core"}, "1.1% of a core"),
    ],
)
def test_a_figure_is_shown_with_its_unit_and_interval(script, row, shown):
    assert script.figure(row) == shown


def test_a_remark_has_at_most_two_sentences(script):
    for goal in TABLE["goal"]:
        told = script.remark(goal, script.latest(goal))
        assert len(re.findall(r"\.(?= |$)", told)) <= 2, told


def test_a_recorded_figure_is_a_row_of_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "HISTORY", tmp_path)
    record_module.record("startup", "import flatout", 14.41234567, low=12.8, high=15.3, n=15, n_of="starts", unit="ms")
    record_module.record("startup", "import flatout", 15)
    first, second = rows(tmp_path / "startup.jsonl")
    assert first.keys() == second.keys() == FIELDS
    assert (first["value"], first["low"], first["high"], first["n"], first["unit"]) == (14.4123, 12.8, 15.3, 15, "ms")
    assert second["low"] is second["high"] is second["n"] is None
    assert first["date"] == date.today().isoformat()
    assert first["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert re.match(r"\d+ cores, ", first["machine"])
