"""What `flatout run` says and chooses; the whole command is in `tests/e2e/test_run.py`."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.cli.run import _account, _announce, _nothing_done, _with, chosen
from flatout.engine.train import Act, Trained
from flatout.errors import UsageError
from flatout.loader_account import LoaderAccount
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection

PATH = Path("flatout.toml")
PROOF = Proof(
    date="2025-01-02",
    flatout="0.1",
    python="3.11",
    torch="2.13",
    device="cpu",
    speedup=2,
    low=1.9,
    high=2.1,
    num_pairs=8,
)
WORKERS, TF32 = Selection("loader-workers", {"workers": 2}), Selection("tf32")
RECIPE = Recipe(
    script="train.py",
    fixes=(
        Kept(selection=WORKERS, equivalence=Equivalence.BITWISE, speedup=1.6),
        Kept(selection=TF32, equivalence=Equivalence.PRECISION, speedup=1.25),
    ),
    proof=PROOF,
)


@pytest.mark.parametrize(
    ("only", "fixes"),
    [((), ["loader-workers", "tf32"]), (("TF32",), ["tf32"]), ((" loader_workers ",), ["loader-workers"])],
)
def test_fixes_are_named_in_any_spelling(only, fixes):
    assert [kept.selection.fix for kept in chosen(RECIPE, only, PATH)] == fixes


@pytest.mark.parametrize(
    ("word", "advice"), [("tf23", "Did you mean tf32?"), ("nothing-alike", "It holds: loader-workers, tf32.")]
)
def test_a_fix_that_is_not_there_comes_with_its_neighbours(word, advice):
    with pytest.raises(UsageError) as caught:
        chosen(RECIPE, (word,), PATH)
    assert str(caught.value).startswith(f"There is no fix '{word}' in flatout.toml.")
    assert advice in str(caught.value.advice)
    with pytest.raises(UsageError) as caught:
        chosen(replace(RECIPE, fixes=()), (word,), PATH)
    assert "no fix" in str(caught.value.advice)


def test_only_a_fix_that_may_see_a_change_too_late_is_told_what_to_do_then():
    compiled = Selection("compiled-input", {"x": 1})
    assert _with(compiled, "warn").settings == {"x": 1, "on_change": "warn"}
    assert _with(compiled, "stop") is compiled
    assert _with(TF32, "warn") is TF32
    assert _with(Selection("gone"), "warn") == Selection("gone")


@pytest.mark.parametrize(
    ("code", "walked", "said"),
    [
        (0, False, "found nothing to act on"),
        (0, True, "no batch came from memory"),
        (1, False, "had not acted when the script ended with exit code 1"),
        (128 + signal.SIGINT, False, "had not acted when the script was interrupted (Ctrl-C)"),
        (128 + signal.SIGTERM, False, "may not have acted: the script was killed by SIGTERM"),
        (
            128 + signal.SIGKILL,
            True,
            "may not have acted: the script was killed by SIGKILL; memory may have run out: see the system log",
        ),
        (255, False, "had not acted when the script ended with exit code 255"),
    ],
)
def test_why_a_fix_is_not_known_to_have_acted(code, walked, said):
    assert _nothing_done(code, walked=walked) == said


def test_what_will_be_applied_is_announced(capsys):
    _announce("train.py", PATH, RECIPE, RECIPE.fixes, ["torch is another"], verbose=True)
    assert capsys.readouterr().err.splitlines() == [
        "flatout: train.py trains under flatout.toml, proven 2.00x as fast (1.90 to 2.10)",
        "flatout:   loader-workers workers=2 (BITWISE, 1.60x)",
        "flatout:   tf32 (PRECISION, 1.25x)",
        "flatout:   proven 2025-01-02 with flatout 0.1, torch 2.13, Python 3.11 on cpu, 0 cores, 8 pairs",
        "flatout: warning: torch is another",
    ]


def test_a_part_of_a_recipe_is_not_proven_as_a_whole(capsys):
    _announce("train.py", PATH, RECIPE, RECIPE.fixes[:1], [], verbose=False)
    assert capsys.readouterr().err.splitlines()[0] == "flatout: train.py trains under flatout.toml"
    _announce("train.py", PATH, replace(RECIPE, fixes=()), (), [], verbose=False)
    assert "flatout.toml holds no fix: train.py trains unchanged" in capsys.readouterr().err
    _announce("train.py", PATH, RECIPE, (), ["edit e is left out: why"], verbose=False)
    told = capsys.readouterr().err.splitlines()
    assert told == ["flatout: no fix of flatout.toml acts: train.py trains unchanged",
                    "flatout: warning: edit e is left out: why"]  # fmt: skip


def test_what_each_fix_did_is_told(capsys):
    account = LoaderAccount(dataset="Rows", place="train.py:3")
    acts = [
        Act(WORKERS, hits={"batches": 12, "in workers": 3}),
        Act(TF32, failures={"no such device": 2}),
        Act(Selection("compiled-input"), loaders={("Rows", "train.py:3"): account}),
        Act(Selection("gc-control"), hits={"steps": 1}, failures={"late": 1}),
    ]
    _account(Trained(0, acts, ranks={1: 50, 0: 50}, notes=["odd"]), ["later"], verbose=True)
    assert capsys.readouterr().err.splitlines() == [
        "flatout: warning: later",
        "flatout: loader-workers workers=2: batches 12, in workers 3",
        "flatout: tf32 could not act in 2 processes and was left out: no such device",
        "flatout: compiled-input: no batch came from memory",
        f"flatout:   {account}",
        "flatout: gc-control: steps 1",
        "flatout: gc-control could not act and was left out: late",
        "flatout: warning: odd",
        "flatout: rank 0: 50 optimizer steps",
        "flatout: rank 1: 50 optimizer steps",
    ]
