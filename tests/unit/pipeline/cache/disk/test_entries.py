import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.mounts import mounted

from flatout.pipeline.cache.disk import entries, entry_format
from flatout.pipeline.cache.disk.entries import Stored, load, save

pytestmark = pytest.mark.slow

ROOMY = 1 << 30
MIB = 1 << 20
FORK = multiprocessing.get_context("fork")
ARRAYS = {
    "images": torch.arange(5000, dtype=torch.int32).to(torch.uint8).view(50, 10, 10),
    "targets": torch.linspace(0, 1, 50, dtype=torch.float64),
    "none": torch.empty(0, 3),
}
FACTS = {"num_samples": 50, "names": ["a", "b"], "nested": {"x": None, "y": 1.5}}


def equal(stored: Stored | None, arrays: dict[str, torch.Tensor], facts: dict[str, object]) -> bool:
    return (
        stored is not None
        and stored.facts == facts
        and list(stored.arrays) == list(arrays)
        and all(
            one.dtype == arrays[name].dtype and one.stride() == arrays[name].stride() and torch.equal(one, arrays[name])
            for name, one in stored.arrays.items()
        )
    )


def filled(value: int, num_bytes: int = MIB) -> dict[str, torch.Tensor]:
    return {"x": torch.full((num_bytes,), value, dtype=torch.uint8)}


def is_filled(stored: Stored, value: int) -> bool:
    return bool((stored.arrays["x"] == value).all()) and stored.facts == {"value": value}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def in_child(work: Callable[[], object]) -> None:
    """Run `work` in a process of its own; what it asserts fails the test here."""
    child = FORK.Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sound")
    assert save(folder, "key", ARRAYS, FACTS, max_bytes=ROOMY) == ""
    assert equal(load(folder, "key"), ARRAYS, FACTS)
    return (folder / "key.samples").read_bytes()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted("4m") as folder:
        yield folder


# -- what was saved comes back ------------------------------------------------------------------------------------


def bits(array: torch.Tensor) -> list[int]:
    return torch.empty(array.numel(), dtype=array.dtype).copy_(array.flatten()).view(torch.uint8).tolist()


DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e5m2]


@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(DTYPES),
    order=st.randoms(),
    gaps=st.booleans(),
)
@settings(max_examples=examples(150))
def test_any_array_comes_back_with_its_bits_and_strides(shape: list[int], dtype: torch.dtype, order, gaps: bool):
    axes = list(range(len(shape)))
    order.shuffle(axes)
    room = torch.randint(0, 2, (*shape, 2 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    array = (room[..., 0] if gaps else room.flatten()[: torch.Size(shape).numel()].view(shape)).permute(axes)
    with tempfile.TemporaryDirectory() as folder:
        assert save(Path(folder), "k", {"a": array}, {}, max_bytes=ROOMY) == ""
        back = load(Path(folder), "k").arrays["a"]
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    assert bits(back) == bits(array)
    assert back.stride() == array.stride() or gaps or not array.numel()


def test_arrays_of_many_blocks_come_back(tmp_path: Path):
    arrays = {"big": torch.randint(0, 256, (3, 5 * MIB + 17), dtype=torch.uint8), "small": torch.ones(3)}
    assert save(tmp_path, "k", arrays, {}, max_bytes=ROOMY) == ""
    assert equal(load(tmp_path, "k"), arrays, {})


def test_a_key_of_any_text_is_kept_apart_from_every_other(tmp_path: Path):
    keys = ["a", "A", "../a", "a" * 300, "", "a/b", "\udc80"]
    for number, key in enumerate(keys):
        assert save(tmp_path, key, filled(number, 10), {"value": number}, max_bytes=ROOMY) == ""
    assert all(is_filled(load(tmp_path, key), number) for number, key in enumerate(keys))
    assert {path.parent for path in tmp_path.rglob("*")} == {tmp_path}


def test_writing_to_what_was_loaded_does_not_reach_the_file(tmp_path: Path):
    save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    first = load(tmp_path, "k")
    first.arrays["x"].fill_(9)
    assert is_filled(load(tmp_path, "k"), 1)


def test_an_entry_outlives_its_file_for_who_has_loaded_it(tmp_path: Path):
    save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    stored = load(tmp_path, "k")
    in_child(lambda: shutil.rmtree(tmp_path))
    assert is_filled(stored, 1)
    assert load(tmp_path, "k") is None


def test_a_thousand_loads_leave_no_file_open(tmp_path: Path):
    save(tmp_path, "k", filled(1, 10), {"value": 1}, max_bytes=ROOMY)
    before = len(os.listdir("/proc/self/fd"))
    assert all(is_filled(load(tmp_path, "k"), 1) for _ in range(1000))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("arrays", "facts"),
    [
        ({"a": torch.eye(3).to_sparse()}, {}),
        ({"a": torch.empty(3, device="meta")}, {}),
        ({"a": torch.ones(3)}, {"f": len}),
    ],
)
def test_what_cannot_be_stored_is_a_reason_and_leaves_nothing(tmp_path: Path, arrays, facts):
    assert save(tmp_path, "k", arrays, facts, max_bytes=ROOMY) != ""
    assert names_in(tmp_path) == set()


# -- damage -------------------------------------------------------------------------------------------------------


def loaded_from(damaged: bytes, key: str = "key") -> Stored | None:
    """Load an entry that consists of these bytes; what is bad must be gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"{key}.samples"
        path.write_bytes(damaged)
        stored = load(Path(name), key)
        assert (stored is None) == (not path.exists())
        return stored


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=examples(400))
def test_an_entry_cut_off_at_any_byte_is_absent(sound: bytes, share: float):
    assert loaded_from(sound[: int(share * len(sound))]) is None


def test_an_entry_cut_off_at_its_edges_is_absent(sound: bytes):
    for end in [*range(60), *range(4075, 4100), *range(len(sound) - 300, len(sound))]:
        assert loaded_from(sound[:end]) is None


def test_an_entry_with_more_at_its_end_is_absent(sound: bytes):
    assert loaded_from(sound + b"\0") is None


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=examples(400))
def test_an_entry_with_any_bit_flipped_is_absent(sound: bytes, share: float, bit: int):
    damaged = bytearray(sound)
    damaged[int(share * len(sound))] ^= 1 << bit
    assert loaded_from(bytes(damaged)) is None


def test_an_entry_with_a_page_of_zeros_or_two_pages_swapped_is_absent(sound: bytes):
    pages = [sound[start : start + 4096] for start in range(0, len(sound), 4096)]
    for number in range(len(pages) - 1):
        assert loaded_from(b"".join([*pages[:number], bytes(4096), *pages[number + 1 :]])) is None
    assert loaded_from(b"".join([pages[0], pages[2], pages[1], *pages[3:]])) is None


def test_an_entry_of_another_version_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as other:
        other.setattr(entry_format, "VERSION", entry_format.VERSION + 1)
        assert save(tmp_path, "k", ARRAYS, FACTS, max_bytes=ROOMY) == ""
        assert equal(load(tmp_path, "k"), ARRAYS, FACTS)
    assert load(tmp_path, "k") is None
    assert names_in(tmp_path) == set()


def test_an_entry_of_a_machine_with_the_other_byte_order_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as other:
        other.setattr("sys.byteorder", "big")
        save(tmp_path, "k", ARRAYS, FACTS, max_bytes=ROOMY)
    assert load(tmp_path, "k") is None


def test_an_entry_under_the_name_of_another_is_absent(sound: bytes):
    assert loaded_from(sound, "key") is not None
    assert loaded_from(sound, "other") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SIZES = st.lists(st.integers(-1, 3) | st.sampled_from([2**40, 2**61, 2**70]) | JSON, max_size=3)
ONE_ARRAY = st.fixed_dictionaries(
    {
        "name": JSON,
        "dtype": st.sampled_from(["uint8", "float32", "qint8", "bits8", "uint1", "Tensor"]) | JSON,
        "shape": SIZES | JSON,
        "stride": SIZES | JSON,
        "crc32": SIZES | JSON,
    }
)
HEADER = st.fixed_dictionaries(
    {
        "key": st.just("key") | JSON,
        "byteorder": st.just("little"),
        "facts": st.dictionaries(st.text(max_size=3), JSON, max_size=2) | JSON,
        "arrays": st.lists(ONE_ARRAY | JSON, max_size=2) | JSON,
    }
)


@given(header=HEADER | JSON, pages=st.integers(0, 3))
@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])
def test_a_header_that_says_anything_at_all_is_no_error(header: object, pages: int):
    import json

    text = json.dumps(header).encode()
    begin = 4096 * (1 + pages)
    page = entry_format._START.pack(b"flatout samples\n", entry_format.VERSION, begin, begin + len(text)).ljust(
        4080, b"\0"
    )
    stored = loaded_from(page + entry_format._digest(page, text) + bytes(4096 * pages) + text)
    assert stored is None or all(isinstance(one, torch.Tensor) for one in stored.arrays.values())


def test_what_is_no_file_under_the_name_of_an_entry_is_absent(tmp_path: Path, sound: bytes):
    (tmp_path / "elsewhere").write_bytes(sound)
    (tmp_path / "key.samples").symlink_to("elsewhere")
    assert load(tmp_path, "key") is None
    assert (tmp_path / "elsewhere").exists()
    os.mkfifo(tmp_path / "fifo.samples")
    (tmp_path / "folder.samples").mkdir()
    assert load(tmp_path, "fifo") is None
    assert load(tmp_path, "folder") is None
    assert load(tmp_path / "elsewhere", "key") is None
    assert load(tmp_path / "nowhere", "key") is None


# -- disks that are full, or may not be written --------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_that_another_user_owns_is_not_used_and_not_removed(tmp_path: Path):
    save(tmp_path, "key", ARRAYS, FACTS, max_bytes=ROOMY)
    (entry,) = names_in(tmp_path)
    os.chown(tmp_path / entry, 12345, -1)
    assert load(tmp_path, "key") is None
    assert names_in(tmp_path) == {entry}


def test_more_than_may_be_taken_is_refused_with_both_figures(tmp_path: Path):
    assert save(tmp_path, "k", filled(1), {}, max_bytes=MIB) == "they take 1.0 MiB, and 1.0 MiB may be used"
    assert names_in(tmp_path) == set()


def test_a_full_disk_is_a_reason(small_disk: Path):
    assert save(small_disk, "k", filled(1, 3 * MIB), {"value": 1}, max_bytes=ROOMY) == ""
    kept = load(small_disk, "k")
    reason = save(small_disk, "l", filled(2, 3 * MIB), {}, max_bytes=ROOMY)
    assert "3.0 MiB are needed" in reason
    assert " KiB left" in reason
    assert names_in(small_disk) == {"k.samples"}
    assert is_filled(kept, 1)
    assert is_filled(load(small_disk, "k"), 1)


def test_a_disk_that_fills_up_while_an_entry_is_written_is_a_reason(small_disk: Path):
    folder = small_disk / "cache"
    assert save(folder, "k", filled(1, 2 * MIB), {}, max_bytes=ROOMY) == ""
    os.link(folder / "k.samples", small_disk / "kept")  # evicting the entry will give no room
    assert "No space left" in save(folder, "l", filled(2, 3 * MIB), {}, max_bytes=ROOMY)
    assert names_in(folder) == set()


def test_entries_not_in_use_give_way_on_a_full_disk(small_disk: Path):
    assert save(small_disk, "k", filled(1, 3 * MIB), {}, max_bytes=ROOMY) == ""
    assert save(small_disk, "l", filled(2, 3 * MIB), {"value": 2}, max_bytes=ROOMY) == ""
    assert names_in(small_disk) == {"l.samples"}
    assert is_filled(load(small_disk, "l"), 2)


def test_a_limit_on_the_size_of_files_is_a_reason(tmp_path: Path):
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
        assert "too large" in save(tmp_path, "k", filled(1, 2 * MIB), {}, max_bytes=ROOMY)
        assert save(tmp_path, "l", filled(1, MIB // 2), {}, max_bytes=ROOMY) == ""

    in_child(work)
    assert names_in(tmp_path) == {"l.samples"}


LIMITED = """
import resource, sys
from pathlib import Path
from flatout.pipeline.cache.disk.entries import load
folder, room = Path(sys.argv[1]), int(sys.argv[2])
assert load(folder, "small") is not None
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
print(load(folder, "large") is None)
"""


@pytest.mark.parametrize(("room", "absent"), [(32 * MIB, True), (1024 * MIB, False)])
def test_a_limit_on_memory_makes_an_entry_absent_but_does_not_remove_it(tmp_path: Path, room: int, absent: bool):
    save(tmp_path, "small", filled(1), {}, max_bytes=ROOMY)
    save(tmp_path, "large", filled(1, 128 * MIB), {"value": 1}, max_bytes=ROOMY)
    limited = subprocess.run([sys.executable, "-c", LIMITED, tmp_path, str(room)], capture_output=True, text=True)
    assert limited.stdout == f"{absent}\n", limited.stderr
    assert is_filled(load(tmp_path, "large"), 1)


def test_a_limit_on_open_files_is_a_reason(tmp_path: Path):
    save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        assert load(tmp_path, "k") is None
        assert "Too many open files" in save(tmp_path, "l", filled(2), {}, max_bytes=ROOMY)

    in_child(work)
    assert is_filled(load(tmp_path, "k"), 1)


def test_a_folder_that_may_not_be_written_is_read_all_the_same():
    folder = Path(tempfile.mkdtemp())
    save(folder, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    (folder / "bad.samples").write_bytes(b"nothing")
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)

    def work() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        assert "Permission denied" in save(folder, "l", filled(2), {}, max_bytes=ROOMY)
        assert "Permission denied" in save(folder / "below", "l", filled(2), {}, max_bytes=ROOMY)
        assert is_filled(load(folder, "k"), 1)
        assert load(folder, "bad") is None

    in_child(work)
    assert names_in(folder) == {"k.samples", "bad.samples"}
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_file_system_is_read_all_the_same(small_disk: Path):
    save(small_disk, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    (small_disk / "bad.samples").write_bytes(b"nothing")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "Read-only file system" in save(small_disk, "l", filled(2), {}, max_bytes=ROOMY)
    assert is_filled(load(small_disk, "k"), 1)
    assert load(small_disk, "bad") is None


def test_a_folder_that_is_a_file_is_a_reason(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert save(tmp_path / "file", "k", filled(1), {}, max_bytes=ROOMY) != ""
    assert save(tmp_path / "file" / "below", "k", filled(1), {}, max_bytes=ROOMY) != ""


# -- the cap --------------------------------------------------------------------------------------------------------


def test_what_was_not_used_for_longest_gives_way(tmp_path: Path):
    for number in range(4):
        assert save(tmp_path, str(number), filled(number), {"value": number}, max_bytes=ROOMY) == ""
    now = time.time()
    for number in range(4):
        os.utime(tmp_path / f"{number}.samples", (now - 100 + number, now - 100 + number))
    assert is_filled(load(tmp_path, "0"), 0)
    assert save(tmp_path, "new", filled(9), {"value": 9}, max_bytes=4 * MIB + MIB // 2) == ""
    assert names_in(tmp_path) == {"0.samples", "3.samples", "2.samples", "new.samples"}


def test_what_is_in_use_stays_and_nothing_goes_for_nothing(tmp_path: Path):
    save(tmp_path, "used", filled(1), {"value": 1}, max_bytes=ROOMY)
    save(tmp_path, "idle", filled(2), {"value": 2}, max_bytes=ROOMY)
    used = load(tmp_path, "used")
    reason = save(tmp_path, "new", filled(3, 2 * MIB), {}, max_bytes=2 * MIB + MIB // 2)
    assert reason == "2.0 MiB are needed, and entries in use leave 1.5 MiB of 2.5 MiB"
    assert names_in(tmp_path) == {"used.samples", "idle.samples"}
    assert is_filled(used, 1)
    del used
    assert save(tmp_path, "new", filled(3, 2 * MIB), {}, max_bytes=2 * MIB + MIB // 2) == ""
    assert names_in(tmp_path) == {"new.samples"}


def test_an_entry_is_replaced_by_its_own_successor_first(tmp_path: Path):
    save(tmp_path, "other", filled(1), {"value": 1}, max_bytes=ROOMY)
    save(tmp_path, "k", filled(2), {"value": 2}, max_bytes=ROOMY)
    assert save(tmp_path, "k", filled(3), {"value": 3}, max_bytes=2 * MIB + MIB // 2) == ""
    assert is_filled(load(tmp_path, "k"), 3)
    assert is_filled(load(tmp_path, "other"), 1)


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path):
    (tmp_path / "mine.txt").write_bytes(bytes(4 * MIB))
    assert save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=2 * MIB) == ""
    assert names_in(tmp_path) == {"mine.txt", "k.samples"}


# -- several processes ------------------------------------------------------------------------------------------------


def saving(folder: Path, key: str, value: int, times: int, max_bytes: int = ROOMY) -> None:
    for _ in range(times):
        reason = save(folder, key, filled(value), {"value": value}, max_bytes=max_bytes)
        assert reason in ("", "another process is writing the same samples"), reason


def test_processes_that_save_the_same_key_at_once_leave_one_whole_entry(tmp_path: Path):
    children = [FORK.Process(target=saving, args=(tmp_path, "k", value, 40)) for value in (1, 2, 3)]
    for child in children:
        child.start()
    seen = 0
    while any(child.is_alive() for child in children):
        stored = load(tmp_path, "k")
        if stored is not None:
            seen += 1
            assert is_filled(stored, stored.facts["value"])
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert seen > 0
    stored = load(tmp_path, "k")
    assert is_filled(stored, stored.facts["value"])
    assert names_in(tmp_path) == {"k.samples"}


def test_while_one_process_writes_a_key_another_is_told_so(tmp_path: Path):
    ready, go_on = FORK.Event(), FORK.Event()

    def work() -> None:
        plain = entries.write

        def slow(plan, file, *rest) -> None:
            ready.set()
            go_on.wait(30)
            plain(plan, file, *rest)

        entries.write = slow
        assert save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY) == ""

    child = FORK.Process(target=work)
    child.start()
    assert ready.wait(30)
    assert save(tmp_path, "k", filled(2), {}, max_bytes=ROOMY) == "another process is writing the same samples"
    assert load(tmp_path, "k") is None
    assert "entries in use leave" in save(tmp_path, "l", filled(2), {}, max_bytes=2 * MIB)  # its room is spoken for
    assert save(tmp_path, "l", filled(2), {"value": 2}, max_bytes=ROOMY) == ""
    go_on.set()
    child.join()
    assert child.exitcode == 0
    assert is_filled(load(tmp_path, "k"), 1)


@pytest.mark.slow
def test_a_save_killed_at_any_moment_leaves_the_old_entry_or_the_new_one(tmp_path: Path):
    luck = random.Random(0)
    killed_within = 0
    for turn in range(40):
        child = FORK.Process(target=saving, args=(tmp_path, "k", turn % 7, 1000))
        child.start()
        time.sleep(luck.uniform(0, 0.05))
        child.kill()
        child.join()
        killed_within += bool(names_in(tmp_path) - {"k.samples"})
        stored = load(tmp_path, "k")
        assert stored is None or is_filled(stored, stored.facts["value"])
        del stored
        assert save(tmp_path, "other", filled(8), {"value": 8}, max_bytes=ROOMY) == ""
        assert names_in(tmp_path) <= {"k.samples", "other.samples"}
    assert killed_within > 0
    assert save(tmp_path, "k", filled(9), {"value": 9}, max_bytes=ROOMY) == ""
    assert is_filled(load(tmp_path, "k"), 9)


@pytest.mark.slow
def test_loading_while_others_evict_gives_whole_entries_only(tmp_path: Path):
    cap = 4 * MIB

    enough = FORK.Event()

    def work(seed: int) -> None:
        luck = random.Random(seed)
        while not enough.is_set():
            value = luck.randrange(6)
            save(tmp_path, str(value), filled(value), {"value": value}, max_bytes=cap)

    children = [FORK.Process(target=work, args=(seed,)) for seed in range(2)]
    for child in children:
        child.start()
    seen, held, until = 0, [], time.monotonic() + 30
    while seen < 50 and time.monotonic() < until:
        value = random.randrange(6)
        stored = load(tmp_path, str(value))
        if stored is not None:
            seen += 1
            held = [(stored, value)]
        assert all(is_filled(one, kept) for one, kept in held)
        with contextlib.suppress(FileNotFoundError):
            assert sum(path.lstat().st_size for path in tmp_path.iterdir()) <= cap
    enough.set()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert seen == 50


def test_a_child_forked_while_entries_are_mapped_keeps_reading_them(tmp_path: Path):
    save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    stored = load(tmp_path, "k")
    child = FORK.Process(target=lambda: os._exit(0 if is_filled(stored, 1) else 1))
    child.start()
    child.join()
    assert child.exitcode == 0


def test_a_holder_of_the_folder_that_was_stopped_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(entries, "_PATIENCE_S", 0.1)
    save(tmp_path, "k", filled(1), {"value": 1}, max_bytes=ROOMY)
    with entries._held(tmp_path):
        assert "another process has held it" in save(tmp_path, "l", filled(2), {}, max_bytes=ROOMY)
        assert is_filled(load(tmp_path, "k"), 1)
