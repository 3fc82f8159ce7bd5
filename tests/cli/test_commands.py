"""The other commands, and the group they belong to.

Modules: flatout.cli.explain, flatout.cli.present, flatout.cli.report.
"""

import json
import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest
from tests.unit.report.specimens import empty, ordinary, report, tuned, tuned_in_vain
from tests.unit.report.specimens import run as specimen_run

from flatout.cli import names
from flatout.cli.demo import FOLDER, Training, train
from flatout.cli.main import COMMANDS, cli, main, run
from flatout.errors import ScriptFailed
from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.fix import Fix
from flatout.report.json import dumps
from flatout.rules.core.catalog import catalog
from flatout.rules.core.rule import Rule
from flatout.schema.codec import write_run
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Ceiling
from flatout.schema.trial import Equivalence
from flatout.schema.whole_training import TrainingTimes, WholeTraining

PAGE = "The step waits.\n\n## What it measures\n\nThe wait, in `ms`.\n"


@pytest.fixture
def catalogs(monkeypatch):
    module = types.ModuleType("page_of_xx001")
    module.__doc__ = PAGE
    monkeypatch.setitem(sys.modules, "page_of_xx001", module)

    def check(run, breakdown, headroom):
        return None

    check.__module__ = "page_of_xx001"
    rules = (
        Rule(code="XX001", name="waits", check=check, fires_on=(), quiet_on=()),
        Rule(code="XX002", name="waits-for-long", check=check, fires_on=(), quiet_on=(), preview=True),
    )
    monkeypatch.setattr(sys.modules["flatout.rules.core.catalog"], "catalog", lambda: rules)
    monkeypatch.setattr(names, "catalog", lambda: rules)

    def patch(site):
        """Do nothing."""

    patch.__module__ = "page_of_xx001"
    cures = (
        Fix(name="hurry", equivalence=Equivalence.ROUNDING, phases=(), patch=patch, addresses=("XX001", "XX002")),
        Fix(name="larger-batch", equivalence=Equivalence.SEMANTIC, phases=(), patch=patch, on_request=True),
    )
    monkeypatch.setattr(sys.modules["flatout.fixes.core.catalog"], "fixes", lambda: cures)
    monkeypatch.setattr(names, "fixes", lambda: cures)


def child(*words, code="import sys; from flatout.cli.main import main; main(sys.argv[1:])", **options):
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, **options)


# ------------------------------------------------------------------------------------------------------------ the group
def test_help_tells_the_story_in_order(capsys, golden):
    assert run(["--help"]) == 0
    golden("help", capsys.readouterr().out)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_a_help_page_and_at_most_twelve_options(capsys, golden, command):
    assert run([command, "--help"]) == 0
    golden(f"help-{command}", capsys.readouterr().out)
    options = [each for each in cli.get_command(None, command).params if each.param_type_name == "option"]
    assert len(options) <= 12


def test_the_version_is_one_line(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flatout, version ")


def test_a_script_in_place_of_a_command_is_answered_with_the_command(capsys):
    assert run(["train.py"]) == 2
    assert "flatout diagnose train.py" in capsys.readouterr().err


def test_a_command_that_does_not_exist_is_wrong_usage(capsys):
    assert run(["diagnos"]) == 2
    assert "diagnos" in capsys.readouterr().err


def test_help_imports_neither_rich_nor_psutil_nor_torch():
    code = (
        "import sys; from flatout.cli.main import run; run(['--help']);"
        "print(sorted(name for name in ('rich', 'psutil', 'torch') if name in sys.modules), file=sys.stderr)"
    )
    assert child(code=code).stderr == "[]\n"


def test_the_entry_point_ends_the_process_with_the_exit_code():
    with pytest.raises(SystemExit) as caught:
        main(["explain", "nothing-like-it"])
    assert caught.value.code == 2


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from flatout.cli.main import main; main(['--help'])"
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)
    assert ended.stderr == b""


# -------------------------------------------------------------------------------------------------------------- explain
def test_all_rules_and_fixes_are_listed_with_their_first_sentence(catalogs, capsys, golden):
    assert run(["explain"]) == 0
    golden("explain", capsys.readouterr().out)


def test_a_narrow_terminal_gets_the_sentence_on_a_line_of_its_own(catalogs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["explain"]) == 0
    assert "XX001  waits\n       The step waits.\n" in capsys.readouterr().out


def test_every_rule_and_every_fix_that_exists_is_listed(capsys):
    assert run(["explain"]) == 0
    shown = capsys.readouterr().out
    assert all(rule.code in shown for rule in catalog())
    assert all(f"\n{fix.name}" in shown for fix in fixes())


@pytest.mark.parametrize("word", ["hurry", " Hurry"])
def test_the_page_of_a_fix_comes_with_its_class_and_what_it_addresses(catalogs, capsys, word):
    assert run(["explain", word]) == 0
    assert capsys.readouterr().out == (f"# hurry\n\n{PAGE.strip()}\n\nClass: ROUNDING. Addresses: XX001, XX002.\n")


def test_a_fix_on_request_says_how_to_request_it(catalogs, capsys):
    assert run(["explain", "larger_batch"]) == 0
    assert "Tried only on request: `flatout tune --also larger-batch SCRIPT`." in capsys.readouterr().out


def test_a_misspelt_fix_comes_with_its_neighbours(catalogs, capsys):
    assert run(["explain", "huryr"]) == 2
    assert "Did you mean hurry?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["XX001", "xx001", "waits", "WAITS"])
def test_a_rule_is_found_by_code_and_by_name_in_any_case(catalogs, capsys, word):
    assert run(["explain", word]) == 0
    section = "## Measured\n\nNo recording of this fault is kept here yet."
    cures = "`flatout tune` tries: hurry (ROUNDING)."
    assert capsys.readouterr().out == f"# XX001 waits\n\n{PAGE.strip()}\n\n{section}\n\n{cures}\n"


def test_a_rule_lists_its_cures_with_their_classes_its_own_edit_too_or_says_why_there_is_none(capsys):
    assert run(["explain", "HO004"]) == 0
    edit = "an edit of the source: gc.collect left out (BITWISE)"
    assert f"`flatout tune` tries: gc-control (BITWISE), {edit}." in capsys.readouterr().out
    assert run(["explain", "CO003"]) == 0
    assert "`flatout tune` tries: anomaly-off (BITWISE, on request)." in capsys.readouterr().out
    assert run(["explain", "MS001"]) == 0
    assert "`flatout tune` has no cure for it. It is about the machine, not the script" in capsys.readouterr().out


def test_a_rule_in_preview_says_so(catalogs, capsys):
    assert run(["explain", "waits_for_long"]) == 0
    assert "Preview:" in capsys.readouterr().out


def test_a_terminal_gets_the_page_laid_out(catalogs, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["explain", "XX001"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[" in shown
    assert "## What" not in shown


def test_an_unknown_rule_comes_with_its_neighbours(catalogs, capsys, golden):
    assert run(["explain", "xx01"]) == 2
    golden("explain-unknown", capsys.readouterr().err)
    assert run(["explain", "quite-different"]) == 2
    assert "lists them all" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------- report
@pytest.fixture
def recorded(project, monkeypatch):
    """The ordinary recording, written where a diagnosis would have put it."""
    monkeypatch.setattr(sys.modules["flatout.rules.core.find"], "catalog", lambda: ())
    folder = project / ordinary().folder
    write_run(ordinary().run, folder / "run.jsonl")
    return folder


def test_a_recording_is_shown_again(recorded, capsys, golden):
    assert run(["report", ".flatout"]) == 0
    golden("report", capsys.readouterr().out)


@pytest.mark.parametrize(
    "folder", [".", ".flatout", ".flatout/train", ordinary().folder, f"{ordinary().folder}/run.jsonl"]
)
def test_the_recording_is_found_from_every_folder_above_it(recorded, capsys, folder):
    assert run(["report", folder]) == 0
    assert "20250102-030405" in capsys.readouterr().out


def test_the_newest_of_several_recordings_is_shown(recorded, capsys):
    newer = recorded.parent / "20250102-030406"
    newer.mkdir()
    write_run(empty().run, newer / "run.jsonl")
    os.utime(recorded / "run.jsonl", (1, 1))
    assert run(["report", "."]) == 0
    assert "Recording: .flatout/train/20250102-030406" in capsys.readouterr().out


def test_ceilings_are_taken_from_the_report_beside_the_recording(recorded, capsys):
    (recorded / "report.json").write_text(dumps(ordinary()))
    assert run(["report", "."]) == 0
    assert "device-resident           38.0 ms" in capsys.readouterr().out


def test_a_recording_knows_its_own_ceilings_with_their_intervals(recorded, capsys):
    held = Ceiling(ceiling=HELD_INPUT, median_ms=38.0, speedup=2.5, low=2.4, high=2.6, num_pairs=8)
    write_run(replace(ordinary().run, ceilings=(held,)), recorded / "run.jsonl")
    (recorded / "report.json").write_text(dumps(ordinary()))
    assert run(["report", "."]) == 0
    shown = capsys.readouterr().out
    assert "one batch replayed        40.0 ms  37.5 to 42.6      60% input" in shown
    assert "device-resident" not in shown


def test_a_damaged_report_beside_the_recording_costs_only_the_ceilings(recorded, capsys):
    (recorded / "report.json").write_text("{")
    assert run(["report", "."]) == 0
    assert "Headroom" not in capsys.readouterr().out


def test_a_recording_can_be_written_as_json_again(recorded, capsys):
    assert run(["report", ".", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["measured"] == 60


def test_a_recording_is_exported_for_other_programs(recorded, project, capsys):
    words = ["--export", "a.trace.json", "--export", "b.speedscope.json", "--export", "c.md"]
    assert run(["report", ".", *words]) == 0
    assert json.loads((project / "a.trace.json").read_text())["otherData"]["steps"] == 61
    assert json.loads((project / "b.speedscope.json").read_text())["exporter"] == "flatout"
    assert (project / "c.md").read_text().startswith("### ")


@pytest.mark.parametrize(
    ("file", "said"),
    [("a.txt", "does not end with any of .html"), ("no/a.md", "does not exist"), ("folder.md", "is a folder")],
)
def test_an_export_that_cannot_be_is_refused_first(recorded, project, capsys, file, said):
    (project / "folder.md").mkdir()
    assert run(["report", ".", "--export", file]) == 2
    streams = capsys.readouterr()
    assert said in " ".join(streams.err.split())
    assert streams.out == ""


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_a_tracker_that_is_not_installed_is_told_with_its_extra(recorded, capsys, monkeypatch, tracker):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["report", ".", "--export", f"{tracker}:runs"]) == 2
    streams = capsys.readouterr()
    assert f"pip install 'flatout[{tracker}]'" in streams.err
    assert streams.out == ""


def test_a_recording_is_handed_to_a_tracker_with_the_place_as_it_was_given(recorded, capsys, monkeypatch):
    from flatout.report import exports

    taken = []
    tracker = exports.Tracker("json", lambda report, place: taken.append((report.run.header.script, place)) or "r\x1b1")
    monkeypatch.setattr(exports, "TRACKERS", {"mlflow": tracker})
    assert run(["report", ".", "--export", "mlflow:http://127.0.0.1:5000//x"]) == 0
    assert taken == [("train.py", "http://127.0.0.1:5000//x")]
    assert "mlflow:http://127.0.0.1:5000//x: run r\\x1b1" in capsys.readouterr().err
    assert run(["report", ".", "--export", "mlflow:"]) == 2
    assert "does not say where to write" in capsys.readouterr().err


def test_a_folder_without_a_recording_is_told_how_to_make_one(project, capsys):
    assert run(["report", "."]) == 2
    assert "flatout diagnose SCRIPT" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{", "not json\n", '{"kind":"flatout","schema":99}\n'])
def test_a_file_that_is_no_recording_is_refused(project, capsys, content):
    (project / "run.jsonl").write_text(content)
    assert run(["report", "."]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_rule_that_fails_becomes_a_note(recorded, capsys, monkeypatch):
    def check(run, breakdown, headroom):
        raise RuntimeError("no idea")

    broken = Rule(code="XX001", name="broken", check=check, fires_on=(), quiet_on=())
    monkeypatch.setattr(sys.modules["flatout.rules.core.find"], "catalog", lambda: (broken,))
    assert run(["report", "."]) == 0
    assert "XX001 broken could not be applied" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")


@pytest.mark.slow
def test_a_recording_of_a_hundred_thousand_steps_is_shown(project, capsys):
    long = specimen_run(100_000, validation_s=0, input=1, forward=3)
    write_run(replace(long, environment=ordinary().run.environment), project / "run.jsonl")
    assert run(["report", "."]) == 0
    assert "n=99999" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------------------- demo
@pytest.fixture
def trainings(monkeypatch):
    """Stand in for the two trainings: the second takes half as long."""
    asked = []

    def fake(command, words, *, verbose):
        asked.append(words)
        return Training(command, 8.0 / len(asked), "epoch 4: test accuracy 0.9")

    monkeypatch.setattr("flatout.cli.demo.train", fake)
    return asked


def test_the_demo_tunes_a_copy_of_its_script_and_trains_it_both_ways(search, trainings, capsys, project):
    assert run(["demo"]) == 0
    assert search.calls[0]["target"].name == ".flatout/demo/train.py"
    for name in ("train.py", "data/digits.zip", "flatout.toml"):
        assert (project / ".flatout/demo" / name).is_file()
    assert not (project / "flatout.toml").exists()
    assert trainings == [("train.py", "--epochs", "4"), ("-m", "flatout", "run", "train.py", "--epochs", "4")]
    streams = capsys.readouterr()
    assert "the script is .flatout/demo/train.py" in streams.err
    assert streams.out.endswith(
        "Trained in .flatout/demo, from start to end, once each:\n"
        "  python train.py --epochs 4        8.00 s\n"
        "    epoch 4: test accuracy 0.9\n"
        "  flatout run train.py --epochs 4   4.00 s  2.0x as fast\n"
        "    epoch 4: test accuracy 0.9\n"
        f"\nThe whole report, for a browser: {ordinary().folder}/report.html\n"
    )


def test_the_demo_says_what_was_expected_of_as_many_epochs(search, trainings, capsys, project):
    plain = TrainingTimes(startup_s=2, first_epoch_s=10, later_epoch_s=10)
    half = TrainingTimes(startup_s=2, first_epoch_s=10, later_epoch_s=5)
    made = replace(tuned().recipe, whole=WholeTraining(epochs=20, steps=23, plain=plain, tuned=half))
    search.result = replace(tuned(), recipe=made)
    assert run(["demo"]) == 0
    assert "2.0x as fast (expected of 4 epochs: 1.56x)" in capsys.readouterr().out


def test_the_demo_with_json_on_stdout_prints_nothing_else_there(search, trainings, capsys):
    assert run(["demo", "--json", "-"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["recipe"] is not None
    assert "2.0x as fast" in streams.err


@pytest.mark.parametrize(("forward", "epochs"), [(3, "20"), (2000, "2")])
def test_the_demo_trains_for_some_seconds_however_fast_the_machine_is(search, trainings, forward, epochs):
    search.result = replace(tuned(), breakdown=report(forward=forward).breakdown)
    assert run(["demo"]) == 0
    assert trainings[0] == ("train.py", "--epochs", epochs)


def test_the_demo_can_be_run_twice(search, trainings):
    assert (run(["demo"]), run(["demo"])) == (0, 0)


def test_a_demo_that_kept_nothing_trains_nothing(search, trainings, project):
    assert run(["demo"]) == 0
    search.result = tuned_in_vain()
    trainings.clear()
    assert run(["demo"]) == 0
    assert trainings == []
    assert not (project / ".flatout/demo/flatout.toml").exists()


@pytest.mark.slow
def test_a_training_of_the_demo_runs_in_its_folder_and_is_timed(project, capsys):
    FOLDER.mkdir(parents=True)
    (FOLDER / "short.py").write_text("open('checkpoint.pt', 'w').close(); print('one'); print('last \\x1b[31m')\n")
    done = train("python short.py", ("short.py",), verbose=False)
    assert (done.command, done.last_line) == ("python short.py", "last \x1b[31m")
    assert done.wall_s > 0
    assert (FOLDER / "checkpoint.pt").exists()
    assert capsys.readouterr().err == "flatout: python short.py\n"


@pytest.mark.slow
def test_a_training_of_the_demo_that_fails_is_told_with_its_last_words(project):
    FOLDER.mkdir(parents=True)
    (FOLDER / "bad.py").write_text("raise ValueError('no images')\n")
    with pytest.raises(ScriptFailed, match=r"python bad\.py ended with exit code 1") as caught:
        train("python bad.py", ("bad.py",), verbose=True)
    assert "ValueError: no images" in caught.value.meaning


def test_the_demo_names_the_packages_that_it_needs(search, capsys, monkeypatch):
    monkeypatch.setattr("flatout.cli.demo.find_spec", lambda name: None)
    assert run(["demo"]) == 2
    told = capsys.readouterr().err
    assert "pillow and numpy" in told
    assert "flatout[demo]" in told


def test_a_folder_that_cannot_be_written_is_named(search, capsys, project):
    (project / ".flatout" / "demo").write_text("in the way")
    assert run(["demo"]) == 2
    assert ".flatout/demo cannot be written" in capsys.readouterr().err
