"""Files decoded once: the same samples, errors and draws as before, or left.

Modules: flatout.edits.cures.kept_files.decoded_once, and what it consists of:
flatout.edits.cures.kept_files.block_bounds, flatout.edits.cures.kept_files.block_kinds,
flatout.edits.cures.kept_files.bound_names, flatout.edits.cures.kept_files.call_kinds,
flatout.edits.cures.kept_files.coming_again, flatout.edits.cures.kept_files.file_blocks,
flatout.edits.cures.kept_files.file_reads, flatout.edits.cures.kept_files.kept_text,
flatout.edits.cures.kept_files.module_constants, flatout.edits.cures.kept_files.read_places,
flatout.edits.cures.kept_files.reading_effects, flatout.edits.cures.kept_files.shared_uses,
flatout.edits.cures.kept_files.value_kinds.
"""

import time

import pytest
from tests.unit.edits.cures.kept_files.hostile import HOSTILE
from tests.unit.edits.cures.kept_files.outcomes import hits, outcome
from tests.unit.edits.cures.kept_files.refused import REFUSED
from tests.unit.edits.cures.kept_files.scripts import files
from tests.unit.edits.cures.kept_files.styles import STYLES
from tests.unit.edits.scripts import edited

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def made(folder, text):
    return edited(folder, "kept-files", text)


@pytest.fixture
def later(monkeypatch):
    """Have the files that were just written count as old ones."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10 * 10**9)


@pytest.mark.parametrize("name", STYLES)
def test_every_style_is_done_with_the_same_samples(tmp_path, later, name):
    after, left = made(tmp_path, STYLES[name])
    assert left == ""
    paths = files(tmp_path)
    before = outcome(STYLES[name], paths)
    kept = outcome(after, paths)
    assert before[:2] == kept[:2]
    assert not any(isinstance(each[0], type) and issubclass(each[0], Exception) for each in before[0])
    assert hits(kept[2]) > 20


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_sure_is_left_with_the_reason(tmp_path, name):
    reason, text = REFUSED[name]
    after, left = made(tmp_path, text)
    assert after == ""
    assert reason in left
    assert left


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_give_the_same_samples_or_are_left(tmp_path, later, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    paths = files(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f0.txt").write_text("another text, as long as is needed")
    after, left = made(tmp_path, HOSTILE[name])
    before = outcome(HOSTILE[name], paths)
    assert left or after
    if after:
        assert before[:2] == outcome(after, paths)[:2]
