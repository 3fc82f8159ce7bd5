"""`flatout diagnose` and how a command can end."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.report.specimens import empty, healthy, hostile, ordinary

from flatout.cli.main import cli, run
from flatout.cli.progress import Watcher
from flatout.engine.progress import Progress
from flatout.errors import BadRecording, FlatoutError, Interrupted, NothingMeasured, ScriptFailed
from flatout.report.json import from_json


def transcript(capsys, *words):
    """Return what a person sees of one command: stdout, stderr and the exit code."""
    code = run(words)
    streams = capsys.readouterr()
    return f"$ flatout {' '.join(words)}\n{streams.out}--- stderr\n{streams.err}--- exit code {code}\n"


@pytest.mark.parametrize(("name", "made"), [("ordinary", ordinary), ("healthy", healthy), ("empty", empty)])
def test_transcripts_of_a_diagnosis(engine, capsys, golden, name, made):
    engine.result = made()
    golden(f"diagnose-{name}", transcript(capsys, "diagnose", "train.py"))


def test_a_verbose_diagnosis_shows_the_output_of_the_script_on_stderr(engine, capsys, golden):
    engine.output = b"epoch 1\n"
    golden("diagnose-verbose", transcript(capsys, "diagnose", "--verbose", "train.py"))


def test_a_hostile_script_cannot_write_to_the_terminal(engine, capsys):
    engine.result = hostile()
    assert "\x1b" not in transcript(capsys, "diagnose", "train.py")


def test_json_on_stdout_is_json_and_nothing_else(engine, capsys):
    assert run(["diagnose", "--json", "-", "train.py"]) == 0
    streams = capsys.readouterr()
    assert from_json(streams.out)["script"] == "train.py"
    assert "Training waits" in streams.err


def test_the_json_lies_beside_the_recording_and_where_it_was_asked_for(engine, project):
    assert run(["diagnose", "--json", "out.json", "train.py"]) == 0
    beside = project / ordinary().folder / "report.json"
    assert from_json(beside.read_text()) == from_json(Path("out.json").read_text())


def test_a_json_file_in_a_folder_that_is_not_there_is_refused_before_anything_is_measured(engine, capsys):
    assert run(["diagnose", "--json", "nowhere/out.json", "train.py"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert engine.calls == []


def test_a_json_file_that_cannot_be_written_in_the_end_costs_only_the_file(engine, capsys, monkeypatch):
    monkeypatch.setattr("flatout.cli.present.write_whole", _no_space)
    monkeypatch.setattr("flatout.cli.present.private_opener", _no_space)
    assert run(["diagnose", "--json", "out.json", "train.py"]) == 2
    streams = capsys.readouterr()
    assert "Training waits" in streams.out
    assert "out.json could not be written: No space left on device." in streams.err
    assert "note: report.json could not be written: No space left on device" in streams.err
    assert "note: report.html could not be written: No space left on device" in streams.err
    assert "Report: " not in streams.out


def _no_space(*_, **__):
    raise OSError(28, "No space left on device")


def test_only_named_rules_are_shown_but_all_are_stored(engine, capsys, project, monkeypatch):
    monkeypatch.setattr("flatout.cli.names.catalog", lambda: (_Named("IN003", "slow-sample-line"),))
    assert run(["diagnose", "--only", "slow-SAMPLE-line", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert "IN003" in shown
    assert "IN001" not in shown
    stored = from_json((project / ordinary().folder / "report.json").read_text())
    assert {each["code"] for each in stored["findings"]} == {"IN001", "IN003", "MS001"}


class _Named:
    def __init__(self, code, name):
        self.code, self.name = code, name


def test_a_rule_that_does_not_exist_is_refused_before_anything_is_measured(engine, capsys):
    assert run(["diagnose", "--only", "IN999", "train.py"]) == 2
    assert "There is no rule 'IN999'." in capsys.readouterr().err
    assert engine.calls == []


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py", "--lr", "0.1", "--steps", "3"], ("train.py", "--lr", "0.1", "--steps", "3")),
        (["-m", "json.tool", "--steps", "3"], ("-m", "json.tool", "--steps", "3")),
        (["--", "env", "-u", "X", "python", "train.py"], ("env", "-u", "X", "python", "train.py")),
        (["--", "train.py", "--json", "x"], ("train.py", "--json", "x")),
    ],
)
def test_what_stands_behind_the_script_is_the_script_s_own(engine, words, command):
    assert run(["diagnose", "--steps", "7", *words]) == 0
    call = engine.calls[0]
    assert call["target"].command[-len(command) :] == command
    assert call["limits"].steps == 7


@pytest.mark.parametrize(
    "words", [["--step", "5", "train.py"], ["--step=5", "train.py"], ["--verbos", "train.py"], ["-v", "train.py"]]
)
def test_an_option_before_the_script_that_does_not_exist_is_named_and_not_handed_on(engine, capsys, words):
    assert run(["diagnose", *words]) == 2
    told = capsys.readouterr().err
    assert "No such option" in told
    assert words[0].partition("=")[0] in told
    assert engine.calls == []


def test_a_misspelt_option_comes_with_the_right_one(engine, capsys):
    run(["diagnose", "--step", "5", "train.py"])
    assert "--steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ([], 300),
        (["--budget", "90"], 90),
        (["--budget", "90s"], 90),
        (["--budget", "1.5M"], 90),
        (["--budget", "1h"], 3600),
    ],
)
def test_budgets_are_read_as_people_write_them(engine, words, seconds):
    assert run(["diagnose", *words, "train.py"]) == 0
    assert engine.calls[0]["limits"].budget_s == seconds


@pytest.mark.parametrize("budget", ["", "soon", "5 weeks", "-3", "0", "0s", "9" * 400, "nan", "inf"])
def test_budgets_that_are_no_durations_are_refused(engine, capsys, budget):
    assert run(["diagnose", "--budget", budget, "train.py"]) == 2
    assert "--budget" in capsys.readouterr().err
    assert engine.calls == []


@pytest.mark.parametrize(
    "words", [["--steps", "0", "train.py"], ["--steps", "many", "train.py"], [], ["missing.py"], ["-m"]]
)
def test_wrong_usage_ends_with_exit_code_two(engine, words):
    assert run(["diagnose", *words]) == 2
    assert engine.calls == []


def test_a_script_that_fails_half_way_has_its_report_shown_before_the_error(engine, capsys, golden):
    failure = ScriptFailed(
        "train.py ended with exit code 1.", 'Traceback:\n  File "train.py", line 3\nValueError: \x1b[31m', ""
    )
    failure.report = ordinary()
    engine.error = failure
    golden("diagnose-script-failed", transcript(capsys, "diagnose", "train.py"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            NothingMeasured(
                "train.py made no optimizer step in 120 s.", "flatout measures between steps.", "Try more."
            ),
            3,
        ),
        (ScriptFailed("It failed."), 1),
        (BadRecording("It is damaged."), 2),
        (Interrupted("Interrupted after 40 steps."), 130),
        (FlatoutError(""), 1),
    ],
)
def test_every_failure_has_its_exit_code_and_says_why(engine, capsys, error, code):
    engine.error = error
    assert run(["diagnose", "train.py"]) == code
    told = capsys.readouterr().err
    assert f"error: {error.fact}" in told
    assert error.meaning in told
    assert error.advice in told


def test_ctrl_c_ends_with_one_line(engine, capsys):
    engine.error = KeyboardInterrupt()
    assert run(["diagnose", "train.py"]) == 130
    assert capsys.readouterr().err.endswith("Interrupted.\n")


def test_a_mistake_of_ours_is_told_in_one_line_with_the_place_of_its_traceback(engine, capsys):
    engine.error = RuntimeError("boom \x1b[31m")
    assert run(["diagnose", "train.py"]) == 70
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("flatout itself failed: RuntimeError: boom \\x1b[31m")
    traceback = Path(re.search(r"in (\S+); please", told)[1])
    assert "Traceback (most recent call last)" in traceback.read_text()
    traceback.unlink()


def test_a_mistake_on_a_full_disk_is_told_all_the_same(engine, capsys, monkeypatch):
    engine.error = RuntimeError("boom")
    monkeypatch.setattr("tempfile.NamedTemporaryFile", _no_space)
    assert run(["diagnose", "train.py"]) == 70
    assert "could not be written" in capsys.readouterr().err


def test_the_commands_work_in_click_s_own_test_runner(engine):
    result = CliRunner().invoke(cli, ["diagnose", "--json", "-", "train.py"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"] == 1


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Watcher(bar=True) as watcher:
        watcher.watch(Progress("measuring", 1, 1.7, -3.0, note="\x1b[31m"))
    shown = capsys.readouterr().err
    assert "measuring" in shown
    assert "1 step, 0.00 s left, \\x1b[31m" in shown


def test_a_report_without_a_folder_is_shown_and_not_stored(engine, capsys):
    engine.result = replace(ordinary(), folder="")
    assert run(["diagnose", "train.py"]) == 0
    assert "Recording:" not in capsys.readouterr().out
