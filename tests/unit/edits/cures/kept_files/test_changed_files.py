"""Files that are written, replaced or linked anew while their content is kept, and how the new functions look."""

import os
import time

import pytest
from tests.unit.edits.cures.kept_files.outcomes import hits, outcome
from tests.unit.edits.cures.kept_files.scripts import HEAD, files, script
from tests.unit.edits.scripts import edited

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

TEXT = script("""
text = open(path).read()
ids = [stoi[c] for c in text]  # <<
start = random.randint(0, len(ids) - CONTEXT - 2)
return torch.tensor(ids[start:start + CONTEXT + 1])
""")


def made(folder, text=TEXT):
    after, left = edited(folder, "kept-files", text)
    assert left == ""
    return after


@pytest.fixture
def later(monkeypatch):
    """Have the files that were just written count as old ones."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10 * 10**9)


def longer(path):
    path.write_text(path.read_text() + "aaaa")


def same_time(path):
    status = path.stat()
    path.write_text("b" * status.st_size * 2)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def same_size_and_time(path):
    status = path.stat()
    time.sleep(0.02)
    path.write_text("c" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path):
    status = path.stat()
    other = path.with_suffix(".new")
    other.write_text("d" * status.st_size)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other, path)


def linked(path):
    other = path.with_suffix(".link")
    other.write_text("e" * path.stat().st_size)
    path.unlink()
    path.symlink_to(other)


def linked_anew(path):
    linked(path)
    other = path.with_suffix(".other")
    other.write_text("f" * path.stat().st_size)
    path.unlink()
    path.symlink_to(other)


def removed(path):
    path.unlink()


def emptied(path):
    path.write_text("")


def closed(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "change", [longer, same_time, same_size_and_time, replaced, linked, linked_anew, removed, emptied, closed]
)
def test_a_file_that_changes_between_two_epochs_is_read_again(tmp_path, later, change):
    after = made(tmp_path)
    found = []
    for name, text in (("plain", TEXT), ("kept", after)):
        folder = tmp_path / name
        folder.mkdir()
        paths = files(folder)

        def between(turn, folder=folder):
            if turn == 0:
                change(folder / "f1.txt")

        results, states, space = outcome(text, paths, between, turns=3)
        found.append((str(results).replace(str(folder), ""), states))
        assert name == "plain" or hits(space) > 20
    assert found[0] == found[1]
    assert len(set(found[0][0].split("tensor"))) > 20


def test_a_file_that_is_written_for_each_sample_is_read_each_time(tmp_path):
    text = (
        TEXT
        + """

def used(sample):
    for path in PATHS:
        path.write_text("".join(random.choice(CHARS) for _ in range(400)))
    return sample
"""
    )
    paths = files(tmp_path)
    head = f"PATHS = [__import__('pathlib').Path(each) for each in {[str(each) for each in paths[:1]]}]\n"
    after = made(tmp_path, text)
    for path in paths:
        path.write_text("a" * 400)
    before = outcome(head + text, paths[:1])
    paths[0].write_text("a" * 400)
    kept = outcome(head + after, paths[:1])
    assert before[:2] == kept[:2]
    assert hits(kept[2]) == 0


def test_a_relative_path_is_that_of_the_folder_of_the_moment(tmp_path, later, monkeypatch):
    text = script("""
os.chdir(os.path.dirname(path))
text = open("same.txt").read()  # <<
return text[random.randint(0, 9):]
""")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.txt").write_text(name * 9)
    paths = [tmp_path / "one" / "x.txt", tmp_path / "two" / "x.txt"]
    after = made(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    before = outcome(text, paths)
    kept = outcome(after, paths)
    assert before[:2] == kept[:2]
    assert len({str(each)[-12:] for each in before[0]}) == 2
    assert hits(kept[2]) > 20


@pytest.mark.parametrize("head", ["from time import time\n", "import os.path as pathlib\n", "import os.path\n", ""])
def test_names_that_a_script_uses_otherwise_stay_what_they_are(tmp_path, later, head):
    text = head + TEXT.replace("from pathlib import Path\n", "") + "\nfirst = [str(each) for each in (1, 2)]\n"
    text += "started = time()\n" if "import time" in head else ""
    after = made(tmp_path, text)
    paths = files(tmp_path)
    before, kept = outcome(text, paths), outcome(after, paths)
    assert before[:2] == kept[:2]
    assert hits(kept[2]) > 20


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("    ", "\t")])
def test_line_ends_and_tabs_stay(tmp_path, later, change):
    after = made(tmp_path, change(TEXT).replace("  # <<", "  # <<")).replace("\r\n", "\n")
    paths = files(tmp_path)
    assert outcome(TEXT, paths)[:2] == outcome(after, paths)[:2]


def test_a_second_edit_shares_the_function_that_looks_at_files(tmp_path, later):
    text = (
        HEAD
        + """
def first(path):
    return [int(v) for v in open(path).readline().split(",")]

def second(path):
    return [int(v) for v in open(path).read().split()[1].split(",")]  # <<

class Data:
    def __init__(self, paths):
        self.paths = [p for p in paths if p.suffix == ".csv"]
    def __getitem__(self, index):
        return first(self.paths[index % 3]), second(self.paths[random.randint(0, 2)])
"""
    )
    once = made(tmp_path, text)
    twice = made(tmp_path, once.replace('readline().split(",")]', 'readline().split(",")]  # <<', 1))
    assert once.count("def _state_of_file") == twice.count("def _state_of_file") == 1
    assert twice.count("lru_cache(") == 2
    paths = files(tmp_path)
    assert outcome(text, paths)[:2] == outcome(twice, paths)[:2]


def test_what_is_large_is_not_kept(tmp_path, later):
    paths = files(tmp_path)
    after = made(tmp_path).replace("4_194_304", "300")
    kept = outcome(after, paths)
    assert kept[:2] == outcome(TEXT, paths)[:2]
    assert hits(kept[2]) == 0
    after = made(tmp_path).replace("8_388_608", "300")
    kept = outcome(after, paths)
    assert kept[:2] == outcome(TEXT, paths)[:2]
    assert hits(kept[2]) == 0


def test_comments_between_the_statements_go_with_them(tmp_path):
    text = TEXT.replace("        ids =", "        # to numbers\n        ids =")
    after = made(tmp_path, text)
    assert after.count("# to numbers") == 1
    assert "    # to numbers\n    ids = [stoi[c] for c in text]\n    return ids\n" in after


def test_only_the_lines_of_the_block_are_others(tmp_path):
    plain = TEXT.replace("  # <<", "").split("\n")
    after = made(tmp_path).split("\n")
    assert [line for line in plain if line not in after] == [
        "        text = open(path).read()", "        ids = [stoi[c] for c in text]"
    ]  # fmt: skip
