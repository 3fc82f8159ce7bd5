"""`flatout compare A B -- SCRIPT`: two checkouts train side by side, each in its own folder."""

from pathlib import Path

import pytest

from flatout.engine import compare_versions
from flatout.engine.compare_versions import compare_checkouts, target_in
from flatout.errors import ScriptFailed
from tests.e2e.support import picture, training

READS = "data = open('settings.txt').read()"  # as a script reads a file of its own folder
WRITES = "if done == 30:\n    open('best.txt', 'w').write(str(done))"


@pytest.fixture
def versions(flatout, monkeypatch):
    """Return a function that writes two checkouts; few starts are enough for them."""
    monkeypatch.chdir(flatout.folder)
    monkeypatch.setattr(compare_versions, "LOOKS", (3,))
    monkeypatch.setattr(compare_versions, "PAIRS", 4)
    monkeypatch.setattr(compare_versions, "PAIRS_S", 2.0)

    def write(**scripts):
        for name, script in scripts.items():
            flatout.write(script, f"{name}/train.py")
            flatout.write("0.1", f"{name}/settings.txt")
        return [flatout.folder / name for name in scripts]

    return write


@pytest.mark.full
def test_the_slower_checkout_is_told_and_why(versions, flatout):
    before, after = versions(
        A=training(before=READS, each_step=WRITES),
        B=training(before=READS, each_step=WRITES + "\ntime.sleep(0.006)"),
    )
    earlier = picture(flatout.folder)
    found = compare_checkouts(before, after, ("train.py",), limit=0.05, budget_s=240, watch=lambda progress: None)
    assert picture(flatout.folder) == earlier  # what both wrote is gone, in both folders
    assert found.num_starts == 3
    assert found.ratio > 1.5
    assert [change.name for change in found.phases if change.low_ms > 2] == ["host"]
    assert found.surroundings == ()


@pytest.mark.full
def test_a_checkout_that_fails_by_itself_is_named(versions):
    before, after = versions(A=training(), B=training(each_step="if done == 12: raise KeyError('lr')"))
    with pytest.raises(ScriptFailed, match=r"(?s)^B, .*KeyError"):
        compare_checkouts(before, after, ("train.py",), limit=None, budget_s=200, watch=lambda progress: None)


def test_what_is_no_checkout_or_holds_no_such_script_is_refused(versions, flatout):
    versions(A=training())
    (flatout.folder / "B").mkdir()
    for side, said in (("A/train.py", "A/train.py is not a folder"), ("B", "train.py does not exist")):
        ended = flatout("compare", "A", side, "--limit", "5%", "--", "train.py")
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_a_script_is_started_in_the_folder_of_its_side(versions):
    (before,) = versions(A=training())
    target = target_in(before, ("train.py", "--epochs", "3"))
    assert target.command[1:] == ("train.py", "--epochs", "3")
    assert (target.name, target.folder) == ("train.py", str(before))


def test_folders_may_be_named_from_where_one_stands(versions, monkeypatch):
    (before,) = versions(A=training())
    monkeypatch.chdir(before.parent)
    assert target_in(Path("A"), ("train.py",)) == target_in(before, ("train.py",))
    monkeypatch.chdir(before)
    assert target_in(Path("."), ("train.py",)).folder == str(before)
    assert target_in(Path("../A"), ("train.py",)).folder == f"{before}/../A"
