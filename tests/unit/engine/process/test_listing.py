"""Two listings of the same places: what changed in between is named, what the guard put back is not."""

import os
import shutil

from flatout.engine.process import listing
from flatout.engine.process.listing import differences, list_places, listed_tops, sentence


def seen(top, act, put_back=()):
    """Return what differs after `act()`, relative to `top`."""
    before = list_places([str(top)])
    act()
    named = differences(before, list_places([str(top)], before), [str(top / place) for place in put_back])
    return [os.path.relpath(one, top) for one in named]


def test_new_changed_and_removed_files_and_folders_are_named(workdir):
    for name in ("a", "b", "c", "sub/d"):
        (workdir / name).parent.mkdir(exist_ok=True)
        (workdir / name).write_text("mine")

    def act():
        (workdir / "a").write_text("new")
        (workdir / "b").unlink()
        (workdir / "c").chmod(0o600)
        (workdir / "made").mkdir()
        (workdir / "made" / "e").touch()
        shutil.rmtree(workdir / "sub")

    assert seen(workdir, act) == [
        "a (changed)", "b (removed)", "c (changed)", "made (new)", "sub (removed)", "sub/d (removed)",
    ]  # fmt: skip


def test_a_file_that_looks_as_old_as_before_is_named_by_its_inode_or_change_of_state(workdir):
    (workdir / "a").write_text("mine")
    os.utime(workdir / "a", ns=(10**18, 10**18))

    def act():
        (workdir / "a").write_text("ours")
        os.utime(workdir / "a", ns=(10**18, 10**18))

    assert seen(workdir, act) == ["a (changed)"]


def test_what_the_guard_put_back_is_as_before_though_its_inode_is_another(workdir):
    (workdir / "a").write_text("mine")

    def act():
        shutil.copy2(workdir / "a", workdir / "copy")
        os.replace(workdir / "copy", workdir / "a")

    assert seen(workdir, act, put_back=["a"]) == []


def test_files_behind_links_out_of_the_project_are_looked_at(workdir, tmp_path_factory):
    far = tmp_path_factory.mktemp("far")
    (far / "a").write_text("mine")
    (far / "folder").mkdir()
    (far / "folder" / "b").write_text("mine")
    (workdir / "link").symlink_to(far / "a")
    (workdir / "links").symlink_to(far / "folder")
    before = list_places([str(workdir)])
    (far / "a").write_text("new")
    (far / "folder" / "b").unlink()
    named = differences(before, list_places([str(workdir)], before), [])
    assert sorted(named) == sorted([f"{far / 'a'} (changed)", f"{far / 'folder' / 'b'} (removed)"])


def test_flatout_s_own_folder_and_byte_code_are_passed_over(workdir):
    for name in (".flatout", "__pycache__"):
        (workdir / name).mkdir()
    assert seen(workdir, lambda: [(workdir / name / "x").touch() for name in (".flatout", "__pycache__")]) == []


def test_hidden_files_count_in_the_working_folder_and_not_beside_it(workdir, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    tops = [str(workdir), str(home)]
    before = list_places(tops)
    for folder in (workdir, home):
        (folder / ".hidden").touch()
        (folder / "open").touch()
    named = differences(before, list_places(tops, before), [])
    assert sorted(named) == sorted(f"{place} (new)" for place in (workdir / ".hidden", workdir / "open", home / "open"))


def test_a_folder_too_large_to_be_listed_is_said_to_be(workdir, monkeypatch):
    monkeypatch.setattr(listing, "_MOST_ENTRIES", 3)
    for folder in "abc":
        (workdir / folder).mkdir()
        for name in "defg":
            (workdir / folder / name).touch()
    assert not list_places([str(workdir)]).complete
    assert sentence([], "/a", complete=False).startswith("the working folder is too large to be listed completely")
    assert sentence([], "/a", complete=True) == ""


def test_places_named_on_the_command_line_are_listed_and_the_root_is_not(workdir, monkeypatch):
    monkeypatch.setenv("HOME", "/")
    (workdir / "out").mkdir()
    (workdir / "file").touch()
    tops = listed_tops("/", [f"--out={workdir}/out", str(workdir / "file"), "word", "--x=/nowhere/at/all"])
    assert "/" not in tops
    assert tops[:2] == [str(workdir / "out"), str(workdir)]


def test_the_sentence_shows_twelve_and_counts_the_rest():
    told = sentence([f"/a/{number} (new)" for number in range(15)], "/a", complete=True)
    assert told.startswith("15 files or folders changed past the guard")
    assert "/a/11 (new) and 3 more" in told


def test_what_changed_outside_of_the_working_folder_may_be_other_programs_doing():
    told = sentence(["/a/b (new)", "/c (changed)"], "/a", complete=True)
    assert told == (
        "1 file or folder changed past the guard while the script was measured: /a/b (new); 1 file or folder changed "
        "meanwhile outside of the working folder, by the script or by other programs: /c (changed)"
    )


def test_flatout_s_state_is_nobody_s_change(workdir, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(workdir))
    (workdir / "flatout").mkdir()
    assert seen(workdir, lambda: (workdir / "flatout" / "x").touch()) == []
