"""Whose edits run: this user's, and those that he has said yes to."""

from dataclasses import replace

import pytest

from flatout.engine.process.edit_seal import allow, is_trusted, seal
from flatout.schema.recipe import Kept
from flatout.schema.trial import Equivalence, Selection

EDIT = Selection("edited-source", {"edit": "e", "diff": "--- a/t.py\n+++ b/t.py\n", "files": {"t.py": "00"}})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    monkeypatch.delenv("FLATOUT_STATE", raising=False)
    return tmp_path


def kept(**changes):
    made = Kept(selection=EDIT, equivalence=Equivalence.BITWISE, seal=seal(EDIT, Equivalence.BITWISE))
    return replace(made, **changes)


def test_an_edit_of_one_s_own_runs_and_so_does_every_fix():
    assert is_trusted(kept())
    assert is_trusted(Kept(selection=Selection("tf32"), equivalence=Equivalence.PRECISION))
    assert seal(Selection("tf32"), Equivalence.PRECISION) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"seal": ""},
        {"seal": "0" * 64},
        {"selection": Selection("edited-source", {**EDIT.settings, "diff": "another"})},
        {"selection": Selection("edited-source", {**EDIT.settings, "files": {"t.py": "01"}})},
        {"equivalence": Equivalence.PRECISION},
    ],
)
def test_an_edit_that_was_changed_or_never_sealed_does_not(changes):
    assert not is_trusted(kept(**changes))


def test_another_user_s_seal_is_none(home, monkeypatch):
    mine = kept()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "another"))
    assert not is_trusted(mine)


def test_a_yes_is_remembered_for_that_edit_alone_and_kept_to_oneself(home):
    foreign = kept(seal="")
    allow(foreign)
    allow(foreign)
    assert is_trusted(foreign)
    assert not is_trusted(kept(seal="", selection=Selection("edited-source", {**EDIT.settings, "edit": "f"})))
    file = home / "mine" / "flatout" / "allowed-edits"
    assert file.stat().st_mode & 0o077 == 0
    assert len(file.read_text().split()) == 1


def test_where_nothing_can_be_kept_a_yes_holds_for_this_run_alone(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    allow(kept(seal=""))
    assert not is_trusted(kept(seal=""))
