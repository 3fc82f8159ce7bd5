"""`flatout compare`: two sides of recordings on disk, the page, the JSON and the exit code."""

import importlib
import json
from dataclasses import replace

import pytest
from tests.unit.report.specimens import HOSTILE, empty
from tests.unit.report.specimens import run as specimen_run

from flatout.cli.main import run
from flatout.schema.codec import write_run

STEP = {"input": 62, "forward": 20, "backward": 15, "optimizer": 2.5, "host": 0.5}


@pytest.fixture(autouse=True)
def no_rules(monkeypatch):
    monkeypatch.setattr(importlib.import_module("flatout.rules.core.find"), "catalog", lambda: ())


@pytest.fixture
def recorded(project):
    """Return a function that writes recordings below a folder, each `steps` longer than the one before."""

    def write(side, number, **phases_ms):
        for each in range(number):
            folder = project / side / str(each)
            folder.mkdir(parents=True)
            wobble = 1 + 0.002 * each
            phases = {name: ms * wobble for name, ms in {**STEP, **phases_ms}.items()}
            write_run(specimen_run(**phases), folder / "run.jsonl")
        return side

    return write


def test_what_changed_is_shown(recorded, capsys, golden):
    recorded("A", 3)
    recorded("B", 3, input=82)
    assert run(["compare", "A", "B"]) == 0
    golden("compare", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("number", "input_ms", "code", "word"), [(3, 62, 0, "Passed"), (3, 72, 1, "Failed"), (1, 68, 3, "Undecided")]
)
def test_a_limit_makes_it_a_gate(recorded, capsys, number, input_ms, code, word):
    recorded("A", number)
    recorded("B", number, input=input_ms)
    assert run(["compare", "A", "B", "--limit", "5%"]) == code
    assert word in capsys.readouterr().out


def test_faster_passes_every_limit(recorded, capsys):
    recorded("A", 1)
    recorded("B", 1, input=31)
    assert run(["compare", "A", "B", "--limit", "3"]) == 0
    assert "B is faster" in capsys.readouterr().out


def test_single_recordings_are_compared_and_more_are_advised(recorded, capsys):
    recorded("A", 1)
    recorded("B", 1, input=124)
    assert run(["compare", "A/0", "B/0/run.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "B is slower" in out
    assert "flatout diagnose --out A SCRIPT" in " ".join(out.split())


def test_json_says_the_same(recorded, capsys):
    recorded("A", 2)
    recorded("B", 3, input=82)
    assert run(["compare", "A", "B", "--limit", "5%", "--json", "-"]) == 1
    told = capsys.readouterr()
    row = json.loads(told.out)
    assert row["schema"] == 1
    assert row["recordings"] == {"before": 2, "after": 3}
    assert row["step"]["ratio"] == pytest.approx(1.2, abs=0.01)
    assert row["verdict"] == "slower"
    assert row["limit"] == 0.05
    assert row["samples"] is None
    assert "beyond noise" in row["reason"]
    assert {phase["phase"] for phase in row["phases"]} == set(STEP)
    assert "B is slower" in told.err


def test_json_goes_to_a_file(recorded, project):
    recorded("A", 1)
    recorded("B", 1)
    assert run(["compare", "A", "B", "--json", "difference.json"]) == 0
    assert json.loads((project / "difference.json").read_text())["verdict"] is None


def test_a_page_goes_to_a_file(recorded, project, capsys):
    recorded("A", 2)
    recorded("B", 3, input=82)
    assert run(["compare", "A", "B", "--limit", "5%", "--export", "difference.html"]) == 1
    text = (project / "difference.html").read_text()
    assert "B is slower: a step takes +20" in text
    assert "Failed, limit 5%" in text
    assert "B is slower" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["A", "A"], "A and B share 1 recording"),
        (["A", "A/0"], "A and B share 1 recording"),
        (["A", "train.py"], "train.py is damaged"),
        (["A", "missing"], "does not exist"),
        (["A"], "Missing argument 'B'"),
        (["A", "A", "--export", "page.md"], "does not end with .html"),
        (["A", "A", "--export", "no/page.html"], "does not exist"),
        (["A", "A", "--limit", "none"], "is not a limit"),
        (["A", "A", "--limit", "0.1%"], "The smallest limit is 1%"),
    ],
)
def test_bad_input_is_told(recorded, capsys, words, said):
    recorded("A", 1)
    assert run(["compare", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_recording_without_steps_is_told(recorded, project, capsys):
    recorded("A", 1)
    (project / "B").mkdir()
    write_run(empty().run, project / "B" / "run.jsonl")
    assert run(["compare", "A", "B"]) == 3
    assert "fewer than 8 steady steps" in capsys.readouterr().err


def test_recordings_of_two_scripts_on_one_side_are_refused(recorded, project, capsys):
    recorded("A", 2)
    other = specimen_run(**STEP)
    write_run(replace(other, header=replace(other.header, script="other.py")), project / "A" / "1" / "run.jsonl")
    recorded("B", 1)
    assert run(["compare", "A", "B"]) == 2
    assert "2 scripts: other.py, train.py" in capsys.readouterr().err


def test_hostile_names_are_shown_harmlessly(recorded, project, capsys):
    recorded("A", 1)
    bad = specimen_run(**STEP)
    header = replace(bad.header, script="x" + HOSTILE.replace("\ud800", ""))
    environment = replace(bad.environment, cpu=HOSTILE.replace("\ud800", ""))
    (project / "B").mkdir()
    write_run(replace(bad, header=header, environment=environment), project / "B" / "run.jsonl")
    assert run(["compare", "A", "B"]) == 0
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\u202e", "\u2066", "\u200b", "\x9b"}
