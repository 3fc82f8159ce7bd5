"""Objects kept on disk: whole or not at all, within what may be used, for all processes."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.pipeline.read.objects import object_cache
from flatout.pipeline.read.objects.object_cache import ObjectCache, cache_name

NAMES = [cache_name("object", at) for at in range(200)]


def files(folder):
    return sorted(folder.glob("*/*.object"))


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*/*"))


def test_what_is_kept_is_found_by_any_other(tmp_path):
    begun = time.time() - 30
    ObjectCache(tmp_path, None).keep(NAMES[0], b"data", "etag=1", begun)
    found = ObjectCache(tmp_path, None).find(NAMES[0])
    assert (found.data, found.identity) == (b"data", "etag=1")
    assert found.confirmed == pytest.approx(begun, abs=1e-3)
    assert ObjectCache(tmp_path, None).find(NAMES[1]) is None
    ObjectCache(tmp_path, None).confirm(NAMES[0], begun + 20)
    assert ObjectCache(tmp_path, None).find(NAMES[0]).confirmed == pytest.approx(begun + 20, abs=1e-3)
    ObjectCache(tmp_path, None).keep(NAMES[0], b"", "etag=2", begun)  # another one in its place, of no bytes
    assert ObjectCache(tmp_path, None).find(NAMES[0]).data == b""


def test_names_differ_where_anything_does():
    assert len({cache_name(*parts) for parts in (("a", None), ("a", 1), ("a1",), ("a", "1"), ("a", 1, None))}) == 5


def test_damage_of_any_kind_makes_it_absent(tmp_path):
    rng = random.Random(0)
    for at in range(60):
        ObjectCache(tmp_path, None).keep(NAMES[at], data := rng.randbytes(300), "etag", 0.0)
        [path] = [each for each in files(tmp_path) if NAMES[at][2:] in each.name]
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        if at % 3 == 0:
            del content[place:]
        elif at % 3 == 1:
            content += b"more"
        else:
            content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        found = ObjectCache(tmp_path, None).find(NAMES[at])
        assert found is None or (8 <= place < 16 and found.data == data), place  # the file's own number is not its data


def test_an_object_of_another_name_is_none(tmp_path):
    cache = ObjectCache(tmp_path, None)
    cache.keep(NAMES[0], b"data", "etag", 0.0)
    [path] = files(tmp_path)
    target = tmp_path / NAMES[1][:2] / f"{NAMES[1][2:]}.object"
    target.parent.mkdir(exist_ok=True)
    path.rename(target)
    assert cache.find(NAMES[1]) is None and cache.find(NAMES[0]) is None


def test_those_unused_for_longest_go_first_and_the_bound_holds(tmp_path):
    most = 100_000
    cache = ObjectCache(tmp_path, most)
    for at, name in enumerate(NAMES):
        cache.keep(name, bytes(1000), f"etag={at}", time.time())
        assert size_of(tmp_path) <= most
        now = time.time() + at
        for each in files(tmp_path):
            if name[2:] in each.name:
                os.utime(each, (now, now))
        if at:
            os.utime(tmp_path / NAMES[0][:2] / f"{NAMES[0][2:]}.object", (now + 500, 0))  # used in between
    assert cache.find(NAMES[0]) is not None and cache.find(NAMES[-1]) is not None
    assert cache.find(NAMES[1]) is None
    assert len(files(tmp_path)) > 50
    assert not cache.refused


def test_several_share_one_bound(tmp_path):
    most, caches = 64_000, [ObjectCache(tmp_path, 64_000) for _ in range(3)]
    for at, name in enumerate(NAMES):
        caches[at % 3].keep(name, bytes(2000), "etag", 0.0)
        assert size_of(tmp_path) <= most
    assert len(files(tmp_path)) > 15


def test_what_is_too_large_or_may_not_be_kept_is_not(tmp_path):
    ObjectCache(tmp_path / "small", 100).keep(NAMES[0], bytes(200), "etag", 0.0)
    none = ObjectCache(tmp_path / "none", 0)
    none.keep(NAMES[0], b"1", "etag", 0.0)
    assert not files(tmp_path / "small") and not (tmp_path / "none").exists()
    assert "not kept" in str(none)
    ObjectCache(tmp_path / "none", None).keep(NAMES[0], b"1", "etag", 0.0)
    assert none.find(NAMES[0]) is None


def test_a_folder_that_cannot_be_written_is_said_and_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file", None)
    cache.keep(NAMES[0], b"1", "etag", 0.0)
    assert "cannot be written" in cache.refused and cache.find(NAMES[0]) is None
    full = ObjectCache(tmp_path / "full", None)
    monkeypatch.setattr(object_cache.os, "writev", lambda file, parts: 3)  # a disk that takes a few bytes
    full.keep(NAMES[0], b"1", "etag", 0.0)
    assert "No space left" in full.refused
    assert [path for path in (tmp_path / "full").rglob("*") if path.suffix in (".object", ".partial")] == []


def test_a_copy_that_is_looked_at_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache, "in_a_copy", lambda: True)
    ObjectCache(tmp_path / "c", None).keep(NAMES[0], b"1", "etag", 0.0)
    assert not (tmp_path / "c").exists()


WRITER = """
import sys
from pathlib import Path
from flatout.pipeline.read.objects.object_cache import ObjectCache, cache_name
cache = ObjectCache(Path(sys.argv[1]), 3_000_000)
print("ready", flush=True)
for at in range(10**9):
    number = at % 50
    cache.keep(cache_name("object", number), bytes([number]) * 100_000, f"etag={number}", 0.0)
"""


@pytest.mark.slow
def test_processes_that_write_at_once_and_are_killed_leave_nothing_wrong(tmp_path):
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(3)
    ]
    cache, seen = ObjectCache(tmp_path, 3_000_000), 0
    for one in started:
        one.stdout.readline()
    until = time.monotonic() + 1.0
    while time.monotonic() < until or not seen:
        for number in range(50):
            found = cache.find(cache_name("object", number))
            if found is not None:
                seen += 1
                assert found.data == bytes([number]) * 100_000 and found.identity == f"etag={number}"
    for one in started:
        one.kill()
        one.wait()
        one.stdout.close()
    for number in range(50):
        found = ObjectCache(tmp_path, 3_000_000).find(cache_name("object", number))
        assert found is None or found.data == bytes([number]) * 100_000


def test_what_a_killed_process_left_is_removed_in_time(tmp_path, monkeypatch):
    cache = ObjectCache(tmp_path, 10_000)
    cache.keep(NAMES[0], b"1", "etag", 0.0)
    left = [files(tmp_path)[0].parent / "x.1.2.partial", files(tmp_path)[0].parent / "y.1.2.partial"]
    for path in left:
        path.write_bytes(b"half")
    os.utime(left[0], (1.0, 1.0))
    for name in NAMES[1:40]:
        cache.keep(name, bytes(900), "etag", 0.0)
    assert not left[0].exists() and left[1].exists()


def test_the_usual_folder_is_the_users(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert object_cache.usual_folder() == Path("/somewhere/flatout/objects")
