"""Trials on disk: all of them come back after any end, and an unfinished tune is found again."""

import os
import signal
import subprocess
import sys
import textwrap
import typing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.engine.process.target import Target
from flatout.engine.trial import journal
from flatout.engine.trial.journal import (
    STATE_FILE,
    TRIALS_FILE,
    TrialJournal,
    TuneState,
    find_unfinished,
    read_state,
    write_state,
)
from flatout.errors import BadRecording
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Candidate, Check, Comparison, Equality, Equivalence, Pair, Selection, Trial, Verdict

TEXT = st.text(max_size=8) | st.just("\udc80 'quoted'\n\x00 \N{SNOWMAN}")
NUMBER = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
SELECTIONS = st.builds(Selection, fix=TEXT, settings=st.dictionaries(TEXT, JSON, max_size=3))
PAIRS = st.builds(Pair, baseline_ms=NUMBER, candidate_ms=NUMBER)
COMPARISONS = st.builds(
    Comparison,
    pairs=st.lists(PAIRS, max_size=4).map(tuple),
    speedup=NUMBER,
    low=NUMBER,
    high=NUMBER,
    decision=TEXT,
    looks=st.integers(0, 9),
    alpha=NUMBER,
)
CHECKS = st.builds(Check, name=TEXT, passed=st.booleans(), value=NUMBER, limit=NUMBER, detail=TEXT)
EQUALITIES = st.builds(
    Equality,
    claimed=st.sampled_from(Equivalence),
    equal=st.none() | st.booleans(),
    checks=st.lists(CHECKS, max_size=3).map(tuple),
    reason=TEXT,
    deterministic=st.booleans(),
    num_steps=st.integers(0, 99),
)
CANDIDATES = st.builds(
    Candidate,
    selection=SELECTIONS,
    equivalence=st.sampled_from(Equivalence),
    ceiling=NUMBER,
    switchable=st.booleans(),
    reasons=st.lists(TEXT, max_size=2).map(tuple),
)
TRIALS = st.builds(
    Trial,
    number=st.integers(0, 999),
    candidate=CANDIDATES,
    verdict=st.sampled_from(Verdict),
    reason=TEXT,
    comparison=st.none() | COMPARISONS,
    equality=st.none() | EQUALITIES,
    hits=st.dictionaries(TEXT, st.integers(0, 10**9), max_size=3),
    base=st.lists(SELECTIONS, max_size=2).map(tuple),
    wall_s=NUMBER,
    warmup_s=NUMBER,
)
RECIPES = st.builds(
    Recipe,
    script=TEXT,
    fixes=st.lists(
        st.builds(Kept, selection=SELECTIONS, equivalence=st.sampled_from(Equivalence), speedup=NUMBER), max_size=3
    ).map(tuple),
    proof=st.builds(Proof, date=TEXT, flatout=TEXT, python=TEXT, torch=TEXT, device=TEXT, speedup=NUMBER),
)

TARGET = Target(name="train.py", command=("python", "train.py", "--lr", "0.1"))
STATE = TuneState(
    command=TARGET.command, script="train.py", digest="abc", started="2026-01-02T03:04:05Z", budget_s=300.0
)


def trial(number: int = 1) -> Trial:
    selection = Selection("loader-workers", {"workers": 2})
    return Trial(
        number=number,
        candidate=Candidate(selection=selection, equivalence=Equivalence.BITWISE),
        verdict=Verdict.KEPT,
        comparison=Comparison(pairs=(Pair(2.0, 1.0),), speedup=2.0, low=0.0, high=float("inf"), decision="faster"),
    )


# ------------------------------------------------------------------------------------------------------------- trials
@given(trials=st.lists(TRIALS, max_size=4))
@settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@pytest.mark.slow
def test_every_trial_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, trials: list[Trial]) -> None:
    kept = TrialJournal(tmp_path_factory.mktemp("journal"))
    for each in trials:
        kept.append(each)
    assert kept.read() == tuple(trials)


def test_the_strategies_above_know_every_field_of_a_trial() -> None:
    """A field that is added without a place here would not be tested for coming back."""
    known = {"number", "candidate", "verdict", "reason", "comparison", "equality", "hits", "base", "wall_s", "warmup_s"}
    assert set(typing.get_type_hints(Trial)) == known


def test_a_folder_without_a_journal_holds_no_trials(tmp_path: Path) -> None:
    assert TrialJournal(tmp_path).read() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_journal_cut_off_at_any_byte_gives_the_trials_that_were_whole(tmp_path: Path) -> None:
    kept = TrialJournal(tmp_path)
    kept.append(trial(1))
    first = kept.path.stat().st_size
    kept.append(trial(2))
    whole = kept.path.read_bytes()
    for size in range(0, len(whole), 7):
        kept.path.write_bytes(whole[:size])
        assert len(kept.read()) == (size >= first) + (size >= len(whole))


def test_what_is_written_behind_a_line_that_was_cut_off_takes_its_place(tmp_path: Path) -> None:
    kept = TrialJournal(tmp_path)
    kept.append(trial(1))
    with kept.path.open("ab") as file:
        file.write(b'{"number":2,"cand')
    kept.append(trial(3))
    assert [each.number for each in kept.read()] == [1, 3]


@pytest.mark.parametrize("line", [b"{}", b"not json", b"[1]", b"\xff\xfe", b"", b"[" * 100_000])
def test_a_whole_line_that_is_no_trial_is_refused_with_its_number(tmp_path: Path, line: bytes) -> None:
    kept = TrialJournal(tmp_path)
    kept.append(trial(1))
    with kept.path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(BadRecording, match="Line 2 of"):
        kept.read()


def test_a_write_that_fails_half_way_leaves_the_earlier_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = TrialJournal(tmp_path)
    kept.append(trial(1))

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        kept.append(trial(2))
    monkeypatch.undo()
    assert kept.path.read_bytes().endswith(b"\n")
    kept.append(trial(3))
    assert [each.number for each in kept.read()] == [1, 3]


WRITER = """
import sys
from pathlib import Path
from flatout.engine.trial.journal import TrialJournal
from flatout.schema.trial import *
kept = TrialJournal(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    candidate = Candidate(selection=Selection("x" * 50_000), equivalence=Equivalence.BITWISE)
    kept.append(Trial(number=number, candidate=candidate, verdict=Verdict.KEPT))
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_loses_no_trial_that_it_had_finished(tmp_path: Path) -> None:
    for least in (1, 3, 8):
        (tmp_path / TRIALS_FILE).unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            told = 0
            while told < least:
                told = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            told = max([told, *map(int, writer.stdout.read().split())])
        numbers = [each.number for each in TrialJournal(tmp_path).read()]
        assert numbers in (list(range(1, told + 1)), list(range(1, told + 2)))


# -------------------------------------------------------------------------------------------------------------- state
@given(recipe=st.none() | RECIPES, confirmation=st.none() | COMPARISONS, asked=st.dictionaries(TEXT, JSON, max_size=3))
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_a_state_comes_back_as_it_was(tmp_path_factory, recipe, confirmation, asked) -> None:
    folder = tmp_path_factory.mktemp("state")
    state = replace(STATE, recipe=recipe, confirmation=confirmation, asked=asked, finished=True)
    write_state(folder, state)
    assert read_state(folder) == state
    assert [each.name for each in folder.iterdir()] == [STATE_FILE]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"schema": 1}', "\x00"])
def test_a_state_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert read_state(tmp_path) is None
    (tmp_path / STATE_FILE).write_text(text)
    assert read_state(tmp_path) is None


def test_a_state_of_another_version_is_none(tmp_path: Path) -> None:
    write_state(tmp_path, replace(STATE, schema=2))
    assert read_state(tmp_path) is None


def folder_of(top: Path, time: str, state: TuneState | None = STATE) -> Path:
    folder = top / TARGET.slug / time
    folder.mkdir(parents=True)
    if state is not None:
        write_state(folder, state)
    return folder


def test_the_newest_tune_that_is_not_finished_is_found(tmp_path: Path) -> None:
    folder_of(tmp_path, "20260101-000000")
    newest = folder_of(tmp_path, "20260102-000000")
    folder_of(tmp_path, "20260103-000000", replace(STATE, finished=True))
    folder_of(tmp_path, "20260104-000000", None)
    assert find_unfinished(tmp_path, TARGET, "abc") == newest


@pytest.mark.parametrize(
    "other",
    [replace(STATE, command=("python", "train.py")), replace(STATE, digest="other"), replace(STATE, finished=True)],
)
def test_a_tune_of_another_command_or_script_is_not_taken_up(tmp_path: Path, other: TuneState) -> None:
    folder_of(tmp_path, "20260101-000000", other)
    assert find_unfinished(tmp_path, TARGET, "abc") is None


def test_a_tune_that_was_asked_something_else_is_not_taken_up(tmp_path: Path) -> None:
    asked = {"only": ("tf32", "threads"), "equal": Equivalence.ROUNDING}
    folder = folder_of(tmp_path, "20260101-000000", replace(STATE, asked=asked))
    assert find_unfinished(tmp_path, TARGET, "abc", asked) == folder
    assert find_unfinished(tmp_path, TARGET, "abc", {**asked, "only": ("tf32",)}) is None
    assert find_unfinished(tmp_path, TARGET, "abc") == folder


@pytest.mark.parametrize("name", ["tune.json", "trials.jsonl", "trials", "parts", "", ".."])
def test_a_tune_with_links_in_it_is_not_taken_up(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path, "20260101-000000")
    place = Path(os.path.normpath(folder / name))
    assert find_unfinished(tmp_path, TARGET, "abc") == folder
    far = tmp_path.parent / f"{tmp_path.name}-far"
    if place.exists():
        place.rename(far)
    place.symlink_to(far)
    assert find_unfinished(tmp_path, TARGET, "abc") is None


def test_nothing_is_found_where_nothing_was_recorded(tmp_path: Path) -> None:
    assert find_unfinished(tmp_path / "nowhere", TARGET, "abc") is None
