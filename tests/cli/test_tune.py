"""`flatout tune`: what it asks of the engine, what it shows, what it writes and what it leaves alone."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_diagnose import transcript
from tests.unit.report.specimens import (
    healthy,
    hostile_tune,
    kept_trials,
    ordinary,
    recipe,
    trial,
    tuned,
    tuned_in_vain,
)

from flatout.cli import names
from flatout.cli.main import run
from flatout.engine.recipe import write_recipe
from flatout.engine.trial.journal import TrialJournal, TuneState, write_state
from flatout.errors import Interrupted, NothingMeasured, ScriptFailed
from flatout.fixes.core.fix import Fix
from flatout.report.json import from_json
from flatout.rules.core.rule import Rule
from flatout.schema.codec import write_run
from flatout.schema.trial import Equivalence

MINE = '[tool.mine]\nkey = "value"\n'


# -------------------------------------------------------------------------------------------------------- what is shown
@pytest.mark.parametrize(("name", "made"), [("kept", tuned), ("in-vain", tuned_in_vain), ("nothing", healthy)])
def test_transcripts_of_a_tune(search, capsys, golden, name, made):
    search.result = made()
    golden(f"tune-{name}", transcript(capsys, "tune", "train.py"))


def test_a_verbose_tune_shows_every_trial_and_the_output_of_the_script(search, capsys, golden):
    search.output = b"epoch 1\n"
    golden("tune-verbose", transcript(capsys, "tune", "--verbose", "train.py"))


def test_a_hostile_script_cannot_write_to_the_terminal(search, capsys):
    search.result = hostile_tune()
    assert "\x1b" not in transcript(capsys, "tune", "train.py")


def test_the_report_with_trials_and_recipe_lies_beside_the_recording(search, project):
    assert run(["tune", "--json", "out.json", "train.py"]) == 0
    beside = from_json((project / ordinary().folder / "report.json").read_text())
    assert beside == from_json(Path("out.json").read_text())
    assert [each["verdict"] for each in beside["trials"]].count("KEPT") == 3
    assert beside["recipe"]["proven"]["num_pairs"] == 12


def test_json_on_stdout_is_json_and_nothing_else(search, capsys):
    assert run(["tune", "--json", "-", "train.py"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["recipe"]["equivalence"] == "PRECISION"
    assert "Kept, one on top of the other" in streams.err


# ---------------------------------------------------------------------------------------------------- what is asked for
@pytest.fixture
def two_fixes(monkeypatch):
    def patch(site):
        """Do nothing."""

    plain = Fix(name="plain-fix", equivalence=Equivalence.BITWISE, phases=(), patch=patch, addresses=("XX001",))
    asked = replace(plain, name="larger-batch", on_request=True)

    def check(run, breakdown, headroom):
        return None

    rules = (
        Rule(code="XX001", name="waits", check=check, fires_on=(), quiet_on=()),
        Rule(code="XX002", name="by-hand", check=check, fires_on=(), quiet_on=()),
    )
    monkeypatch.setattr(names, "fixes", lambda: (plain, asked))
    monkeypatch.setattr(names, "catalog", lambda: rules)


def test_a_tune_without_options_takes_five_minutes_and_allows_reduced_precision(search):
    assert run(["tune", "train.py"]) == 0
    limits = search.calls[0]["limits"]
    assert (limits.budget_s, limits.only, limits.equal) == (300.0, frozenset(), Equivalence.PRECISION)


def test_options_reach_the_engine_and_the_script_s_own_do_not(search, project):
    words = ["tune", "--budget", "90s", "--equal", "Rounding", "--out", "runs", "train.py", "--equal", "not ours"]
    assert run(words) == 0
    call = search.calls[0]
    assert (call["limits"].budget_s, call["limits"].equal) == (90.0, Equivalence.ROUNDING)
    assert call["target"].command[-3:] == ("train.py", "--equal", "not ours")
    assert call["out"] == Path("runs")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["plain-fix"], {"plain-fix"}),
        (["Plain_Fix", "larger-batch"], {"plain-fix", "larger-batch"}),
        (["XX001"], {"plain-fix"}),
        (["waits", "plain-fix"], {"plain-fix"}),
    ],
)
def test_fixes_are_named_by_themselves_or_by_the_finding_that_they_address(search, two_fixes, given, expected):
    assert run(["tune", *[word for name in given for word in ("--only", name)], "train.py"]) == 0
    assert search.calls[0]["limits"].only == expected


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("plain-fx", "Did you mean plain-fix?"),
        ("XX003", "Did you mean XX001 waits or XX002 by-hand?"),
        ("quite-different", "`flatout explain` lists them all."),
        ("XX002", "No fix addresses XX002 by-hand."),
    ],
)
def test_a_fix_that_does_not_exist_is_refused_before_anything_is_measured(search, two_fixes, capsys, word, told):
    assert run(["tune", "--only", word, "train.py"]) == 2
    assert told in capsys.readouterr().err.replace("XX002 by-hand or XX001 waits", "XX001 waits or XX002 by-hand")
    assert search.calls == []


@pytest.mark.parametrize(
    "words", [["--equal", "exact"], ["--budget", "0"], ["--steps", "3"], ["--recipe", "no/r.toml"]]
)
def test_wrong_usage_ends_with_exit_code_two_before_anything_is_measured(search, words):
    assert run(["tune", *words, "train.py"]) == 2
    assert search.calls == []


# ----------------------------------------------------------------------------------------------------------- the recipe
def test_what_was_kept_is_written_to_the_working_folder(search, project, capsys):
    assert run(["tune", "train.py", "--lr", "1"]) == 0
    body = tomllib.loads((project / "flatout.toml").read_text())
    assert [table["name"] for table in body["fix"]] == ["loader-workers", "compile", "bf16-autocast"]
    lines = capsys.readouterr().out.splitlines()
    page = f"{ordinary().folder}/report.html"
    assert lines[-3:] == ["Recipe: flatout.toml", "Train under it: flatout run train.py --lr 1", f"Report: {page}"]
    assert "as fast under the recipe" in (project / page).read_text()


def test_a_recipe_elsewhere_is_named_in_the_next_command(search, project, capsys):
    (project / "recipes").mkdir()
    assert run(["tune", "--recipe", "recipes/fast.toml", "train.py"]) == 0
    assert (project / "recipes/fast.toml").is_file()
    assert "Train under it: flatout run --recipe recipes/fast.toml train.py\n" in capsys.readouterr().out


def test_a_recipe_beside_the_script_needs_no_name_unless_there_is_one_here(search, project, capsys):
    (project / "sub").mkdir()
    (project / "sub/train.py").write_text("")
    assert run(["tune", "--recipe", "sub/flatout.toml", "sub/train.py"]) == 0
    assert "flatout run sub/train.py\n" in capsys.readouterr().out
    write_recipe(tuned().recipe, project / "flatout.toml")
    assert run(["tune", "--recipe", "sub/flatout.toml", "sub/train.py"]) == 0
    assert "flatout run --recipe sub/flatout.toml sub/train.py\n" in capsys.readouterr().out


@pytest.mark.parametrize("content", [MINE.encode(), b"not toml at all", b"\xff\xfe\x00", b'schema = 1\nscript = "a"\n'])
def test_a_file_that_is_no_recipe_is_never_overwritten(search, project, capsys, content):
    (project / "flatout.toml").write_bytes(content)
    assert run(["tune", "train.py"]) == 2
    assert "flatout.toml exists and was not written by flatout." in capsys.readouterr().err
    assert (project / "flatout.toml").read_bytes() == content
    assert search.calls == []


def test_an_earlier_recipe_and_an_empty_file_are_overwritten(search, project):
    (project / "flatout.toml").write_text("\n")
    assert run(["tune", "train.py"]) == 0
    search.result = replace(tuned(), recipe=recipe(kept_trials()[0]))
    assert run(["tune", "train.py"]) == 0
    assert len(tomllib.loads((project / "flatout.toml").read_text())["fix"]) == 1


def test_a_recipe_of_another_version_is_overwritten(search, project):
    write_recipe(replace(tuned().recipe, schema=7), project / "flatout.toml")
    assert run(["tune", "train.py"]) == 0
    assert tomllib.loads((project / "flatout.toml").read_text())["schema"] == 1


def test_a_tune_that_kept_nothing_writes_no_recipe_and_leaves_an_earlier_one(search, project, capsys):
    search.result = tuned_in_vain()
    assert run(["tune", "train.py"]) == 0
    assert not (project / "flatout.toml").exists()
    write_recipe(tuned().recipe, project / "flatout.toml")
    before = (project / "flatout.toml").read_bytes()
    assert run(["tune", "train.py"]) == 0
    assert (project / "flatout.toml").read_bytes() == before
    assert "note: flatout.toml, written by an earlier tune, is unchanged" in capsys.readouterr().err


def test_a_recipe_that_cannot_be_written_in_the_end_costs_only_the_file(search, project, capsys):
    (project / "flatout.toml.partial").mkdir()
    assert run(["tune", "train.py"]) == 2
    streams = capsys.readouterr()
    assert "3 fixes kept" in " ".join(streams.out.split())
    assert "Train under it" not in streams.out
    assert "flatout.toml cannot be written" in streams.err


# --------------------------------------------------------------------------------------------------- when it goes wrong
def test_an_interrupted_tune_shows_what_it_had_and_writes_no_recipe(search, project, capsys):
    failure = Interrupted("Interrupted.", "11 trials are kept.", "The same command goes on where it stopped.")
    failure.report = replace(tuned(), recipe=None, confirmation=None)
    search.error = failure
    assert run(["tune", "train.py"]) == 130
    streams = capsys.readouterr()
    assert "Not finished: 3 fixes kept so far" in streams.out
    assert "The same command goes on where it stopped." in streams.err
    assert not (project / "flatout.toml").exists()


@pytest.mark.parametrize(("error", "code"), [(ScriptFailed("It failed."), 1), (NothingMeasured("No step."), 3)])
def test_a_script_that_fails_or_does_not_train_has_its_exit_code(search, capsys, error, code):
    search.error = error
    assert run(["tune", "train.py"]) == code
    assert f"error: {error.fact}" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- show again
@pytest.fixture
def recorded(project):
    """A tune on disk as the engine leaves it, without the report beside it."""
    folder = project / ordinary().folder
    write_run(ordinary().run, folder / "run.jsonl")
    for each in tuned().trials:
        TrialJournal(folder).append(each)
    return folder


def state(**changes):
    whole = TuneState(command=("python", "train.py"), script="train.py", digest="", started="", budget_s=300.0)
    return replace(whole, **changes)


def test_a_tune_is_shown_again_with_its_staircase(recorded, capsys):
    write_state(recorded, state(finished=True, recipe=tuned().recipe, confirmation=tuned().confirmation))
    assert run(["report", ".flatout"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2.4x as fast with reduced precision. 3 fixes kept, 11 candidates tried." in shown
    assert "Confirmed: the whole recipe" in shown


@pytest.mark.parametrize("left", [None, state()])
def test_a_killed_tune_is_shown_as_far_as_it_came(recorded, capsys, left):
    if left is not None:
        write_state(recorded, left)
    assert run(["report", ".flatout"]) == 0
    assert "Not finished: 3 fixes kept so far, 11 candidates tried" in " ".join(capsys.readouterr().out.split())


def test_fixes_of_a_recipe_that_was_not_confirmed_are_shown_as_undecided(recorded, capsys):
    write_state(recorded, state(finished=True))
    assert run(["report", ".flatout"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Nothing is kept" in shown
    assert "compile: undecided, so not kept: 1.12x (1.09 to 1.15, n=8 pairs); the recipe as a whole" in shown


def test_a_damaged_journal_costs_only_the_trials(recorded, capsys):
    TrialJournal(recorded).append(trial())
    with TrialJournal(recorded).path.open("a") as file:
        file.write("{}\n")
    assert run(["report", ".flatout"]) == 0
    streams = capsys.readouterr()
    assert "Each step takes" in streams.out
    assert "is not a trial" in " ".join(streams.out.split())
