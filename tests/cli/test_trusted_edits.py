"""What of a recipe's edits `flatout run` serves."""

from pathlib import Path

import pytest

from flatout.cli.trusted_edits import served_edits
from flatout.edits.given_diff import edit_of
from flatout.engine.process.edit_seal import seal
from flatout.engine.process.target import Target, parse_target
from flatout.engine.recipe import read_recipe, write_recipe
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection

OLD, NEW = b"print('training')\n", b"print('faster')\n"
TF32 = Kept(selection=Selection("tf32"), equivalence=Equivalence.PRECISION)
PATH = Path("flatout.toml")
PROOF = Proof(date="2026-11-29", flatout="0.1.0", python="", torch="", device="")


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def kept(name="change.diff", *, own=True, **texts):
    texts = {"train.py": (OLD, NEW), **texts}
    selection = edit_of(name, texts).selection
    made = seal(selection, Equivalence.BITWISE) if own else ""
    return Kept(selection=selection, equivalence=Equivalence.BITWISE, seal=made)


def served(*fixes, allow=False):
    return served_edits(fixes, parse_target(["train.py"]), PATH, allow_edits=allow)


def test_one_s_own_edit_is_served(project):
    mine = kept()
    found = served(TF32, mine)
    assert (found.kept, found.left) == ((TF32, mine), ())
    assert [file.text for file in found.files] == [NEW.decode()]


def test_a_stranger_s_is_left_out_with_one_line_until_it_is_allowed_and_then_for_good(project):
    foreign = kept(own=False)
    found = served(TF32, foreign)
    assert (found.kept, found.files) == ((TF32,), ())
    assert found.left == (
        "edit change.diff is left out: it is code that your own `flatout tune` did not make; read it with `flatout "
        "patch train.py`, then say yes with `flatout run --allow-edits train.py`",
    )
    assert served(foreign, allow=True).kept == (foreign,)
    assert served(foreign).kept == (foreign,)


def test_one_whose_file_has_changed_is_dropped_with_one_line_and_the_rest_acts(project):
    (project / "helper.py").write_text("a = 1\n")
    mine, other = kept(), kept("other.diff", **{"train.py": (b"x = 1\n", NEW)})
    found = served(TF32, other, mine)
    assert found.kept == (TF32, mine)
    assert found.left == ("edit other.diff is left out: train.py has changed since the edit was made",)


def test_files_are_found_from_the_folder_of_the_recipe_too(project, monkeypatch):
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    target = Target("../train.py", ("python", "../train.py"))
    assert len(served_edits([kept()], target, Path("../flatout.toml"), allow_edits=False).files) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_edit_goes_through_the_recipe_file_unchanged_and_readable(project, end):
    old, new = (f"a = 1{end}b = '\\t\"'{end}c = {number}{end}".encode() for number in (1, 2))
    (project / "train.py").write_bytes(old)
    mine = kept(**{"train.py": (old, new)})
    write_recipe(Recipe(script="train.py", fixes=(mine, TF32), proof=PROOF), PATH)
    text = PATH.read_text()
    assert "An edit (`diff`) is code" in text and "Nothing in this file is executed" not in text
    assert ("\n-c = 1\n+c = 2\n" in text) == (end == "\n")
    found = read_recipe(PATH).fixes
    assert found[0] == mine
    assert served(*found).files[0].text.encode() == new
