"""Samples kept in a folder: another process has them from its first batch on, and never a wrong one.

Modules: flatout.pipeline.cache.disk.kept_content.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.mounts import mounted
from tests.unit.pipeline import programs, unseen
from tests.unit.pipeline.programs import Images, Program
from torch.utils.data import DataLoader, Dataset

from flatout.pipeline import compile_loader
from flatout.pipeline.cache.disk import background_writes, disk_cache, entries
from flatout.pipeline.cache.disk.background_writes import BackgroundWrites
from flatout.pipeline.cache.packed import Packed, pack
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow

FORK = multiprocessing.get_context("fork")
LENGTH, MANY = 48, 150


class Numbers(Dataset):
    """Reads each sample from one file, says in another that it was asked, and has parts of every kind."""

    def __init__(self, folder, length=LENGTH):
        self.folder, self.length = str(folder), length
        self.file = str(Path(folder, "numbers"))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.asked()
        with open(self.file, "rb") as file:
            file.seek(index)
            value = file.read(1)[0]
        return torch.full((2, 3), float(value)), index, f"number {value}"

    def asked(self):
        pass


class Told(Numbers):
    """Counts the calls of all processes, where no key sees it."""

    def asked(self):
        unseen.count(int(os.environ["CALLS"]))


class Changing(Numbers):
    """Its file changes when a certain sample is read for the first time, as if somebody else had written it."""

    def asked(self):
        if os.environ.pop("CHANGE", ""):
            write(self.folder, 100)


def write(folder, first=0):
    Path(folder, "numbers").write_bytes(bytes(first + index for index in range(MANY)))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with data, and a count of the calls of `Told`."""
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    monkeypatch.setenv("CALLS", str(unseen.tally()))
    return folder


def calls():
    return sum(map(sum, unseen.counted(int(os.environ["CALLS"]))))


def walked(dataset, folder, passes=2, max_bytes=None, between=lambda: None, **options):
    """Walk a loader whose samples are kept in `folder`; return it and its batches, which are those of a plain one."""
    torch.manual_seed(0)
    loader = compile_loader(
        DataLoader(dataset, batch_size=5, shuffle=True, **options), folder=folder, max_bytes=max_bytes
    )
    torch.manual_seed(1)
    batches = []
    for number in range(passes):
        batches.append(list(loader))
        if number + 1 < passes:
            between()
    loader._kept.wait()
    return loader, batches


def plain(dataset, passes=2, **options):
    torch.manual_seed(1)
    loader = DataLoader(dataset, batch_size=5, shuffle=True, **options)
    return [list(loader) for _ in range(passes)]


def right(dataset, folder, **options):
    """Walk it, hold every batch against the plain loader's, and return what is said of it."""
    loader, batches = walked(dataset, folder, **options)
    assert same(batches, plain(dataset, passes=len(batches)))
    return loader.explain()


def entry(folder):
    (path,) = folder.glob("*.samples")
    return path


# -- the next process ---------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, torch
from torch.utils.data import DataLoader
from tests.unit.pipeline import unseen
from tests.unit.pipeline.cache.disk.test_disk_cache import Told, calls
from flatout.pipeline import compile_loader

os.environ["CALLS"] = str(unseen.tally())
loader = compile_loader(DataLoader(Told(sys.argv[1], 150), batch_size=5), folder=sys.argv[2])
for _ in range(int(sys.argv[3])):
    total = sum(float(x.sum()) + float(i.sum()) + sum(map(len, names)) for x, i, names in loader)
print(total, calls())
"""


def process(*args, script=SCRIPT, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_another_process_is_served_from_its_first_batch_on(data, tmp_path):
    first, asked = process(data, tmp_path / "kept", 1).split()  # ends right after the last batch: it is saved at exit
    assert int(asked) >= MANY  # no more where it was looked at in a copy of the process
    again, asked = process(data, tmp_path / "kept", 3).split()
    assert again == first
    assert int(asked) < MANY


def test_samples_on_disk_are_served_without_asking_for_all_of_them(data, tmp_path):
    assert "saved in" in right(Told(data), tmp_path / "kept")
    calls()
    loader, _ = walked(Told(data), tmp_path / "kept", passes=3)
    assert calls() < LENGTH
    assert f"{3 * 10} batches came from there; from {tmp_path}" in loader.explain()


@pytest.mark.parametrize("number", range(len(programs.datasets(12))))
@pytest.mark.few(5)
def test_any_data_set_that_is_kept_comes_back_with_the_same_bits(number, tmp_path):
    program = Program(programs.datasets(12)[number], {"batch_size": 4, "shuffle": True})
    wanted, _ = program.seen()
    for _ in range(2):
        seen, loader = program.seen(lambda plain: compile_loader(plain, folder=tmp_path))
        assert same(seen, wanted)
        loader._kept.wait()
    assert loader._kept.of(loader._plain).strategy.on_disk is None or f"from {tmp_path}" in loader.explain()


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())))
@settings(max_examples=examples(200))
def test_plain_values_come_back_as_they_were(values):
    packed = Packed(*pack(values))
    back = packed.values(torch.arange(len(values)))
    assert list(map(type, back)) == list(map(type, values))
    assert repr(back) == repr(values)


def test_tensors_of_several_shapes_and_types_come_back_with_their_bits():
    values = [torch.rand(1, 2, 3), torch.arange(5), torch.rand(3, 2).t(), torch.tensor(True), torch.empty(0, 2), None]
    back = Packed(*pack(values)).values(torch.tensor([4, 0, 1, 2, 3, 5, 0]))
    assert same(back, [values[index].contiguous() if index < 5 else None for index in (4, 0, 1, 2, 3, 5, 0)])
    back[1].zero_()
    assert float(back[-1].sum()) > 0


@pytest.mark.parametrize("value", [torch.zeros(2, dtype=torch.complex64), torch.eye(2).to_sparse(), object()])
def test_values_that_are_not_packed_are_refused(value):
    with pytest.raises(ValueError, match="is not packed"):
        pack(["a", value])


def test_without_room_nothing_is_packed():
    with pytest.raises(ValueError, match="no room for 5 bytes"):
        pack(["four"], room=lambda num_bytes: None)


def test_decoded_images_of_several_sizes_come_back(tmp_path):
    image, torchvision = pytest.importorskip("PIL.Image"), importlib.import_module("tests.torchvision_stub").torchvision
    (tmp_path / "images" / "a").mkdir(parents=True)
    for number in range(LENGTH):
        pixels = torch.randint(0, 256, (10 + number % 5, 12, 3), dtype=torch.uint8).numpy()
        image.fromarray(pixels).save(tmp_path / "images" / "a" / f"{number:02}.png")
    v1 = torchvision.transforms
    larger = v1.Compose([v1.Resize((40, 40)), v1.ToTensor()])
    for wanted in ("saved in", "from"):
        images = torchvision.datasets.ImageFolder(tmp_path / "images", larger)
        told = right(images, tmp_path / "kept", max_bytes=LENGTH * 1000)  # no room for what they become
        assert wanted in told
        assert "made in batches" in told
    stored = entries.load(tmp_path / "kept", entry(tmp_path / "kept").stem)
    assert stored.facts["stage"] == 0


def test_packed_values_that_do_not_fit_are_refused():
    content, ends = pack(["a", 1])
    with pytest.raises(ValueError, match="no packed values"):
        Packed(content[:-1], ends)


def test_with_workers_the_first_pass_fills_the_folder_too(data, tmp_path):
    assert "saved in" in right(Numbers(data), tmp_path / "kept", num_workers=1)
    assert "from" in right(Numbers(data), tmp_path / "kept", num_workers=1)


# -- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_entry_cut_off_at_any_byte_is_made_anew(data, tmp_path):
    right(Numbers(data), tmp_path / "kept")
    path = entry(tmp_path / "kept")
    whole = path.read_bytes()
    for length in {0, 1, 4095, 4096, 4097, len(whole) - 1, *range(0, len(whole), len(whole) // 25)}:
        path.write_bytes(whole[:length])
        assert "saved in" in right(Numbers(data), tmp_path / "kept")
    assert "from" in right(Numbers(data), tmp_path / "kept")


@pytest.mark.full
def test_an_entry_with_a_wrong_bit_is_made_anew(data, tmp_path):
    right(Numbers(data), tmp_path / "kept")
    path = entry(tmp_path / "kept")
    whole = path.read_bytes()
    for place in range(7, len(whole), len(whole) // 25):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        assert "saved in" in right(Numbers(data), tmp_path / "kept")


def test_an_entry_of_another_version_is_made_anew(data, tmp_path):
    right(Numbers(data), tmp_path / "kept")
    path = entry(tmp_path / "kept")
    whole = path.read_bytes()
    path.write_bytes(whole[:16] + struct.pack("<Q", 99) + whole[24:])
    assert "saved in" in right(Numbers(data), tmp_path / "kept")


@pytest.mark.parametrize("wrong", ["values", "rows", "number", "stage", "arrays"])
def test_a_sound_entry_that_is_not_of_these_samples_is_not_served(wrong, data, tmp_path):
    dataset, folder = Numbers(data), tmp_path / "kept"
    right(dataset, folder)
    key = entry(folder).stem
    stored = entries.load(folder, key)
    arrays, facts = {name: array.clone() for name, array in stored.arrays.items()}, dict(stored.facts)
    if wrong == "values":
        arrays["0"] += 1
    elif wrong == "arrays":
        del arrays["2 ends"]
    else:
        facts |= {"rows": {"rows": []}, "number": {"num_samples": 3}, "stage": {"stage": 0}}[wrong]
    assert entries.save(folder, key, arrays, facts, max_bytes=1 << 30) == ""
    assert "saved in" in right(dataset, folder)


@pytest.fixture
def tiny_disk():
    """A file system of 24 KiB that can be mounted again read-only."""
    with mounted("24k") as folder:
        yield folder


def test_on_a_full_disk_samples_are_kept_in_memory(data, tiny_disk):
    assert "not saved: " in right(Numbers(data), tiny_disk, passes=3)
    assert not list(tiny_disk.glob("*.samples")) + list(tiny_disk.glob("*.partial"))


def test_on_a_full_disk_what_does_not_fit_into_memory_is_left_alone(data, tiny_disk):
    assert "left as it is" in right(Images(LENGTH, side=40), tiny_disk, max_bytes=10_000)


def test_on_a_read_only_disk_samples_are_kept_in_memory(data, tiny_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    told = right(Numbers(data), tiny_disk)
    assert "not saved: " in told
    assert "10 batches came from there" in told


def test_a_folder_that_cannot_be_made_is_a_reason(data, tmp_path):
    (tmp_path / "file").write_text("")
    assert "not saved: " in right(Numbers(data), tmp_path / "file" / "kept")


# -- changes ------------------------------------------------------------------------------------------------------


def test_a_file_that_changed_before_the_start_gives_a_new_entry(data, tmp_path):
    right(Numbers(data), tmp_path / "kept")
    write(data, 100)
    assert "saved in" in right(Numbers(data), tmp_path / "kept")
    assert len(list((tmp_path / "kept").glob("*.samples"))) == 2


def test_a_file_that_changes_in_the_first_pass_is_not_saved(data, tmp_path, monkeypatch):
    dataset = Changing(data)
    loader = compile_loader(DataLoader(dataset, batch_size=5), folder=tmp_path / "kept")
    batches = iter(loader)
    next(batches)
    monkeypatch.setenv("CHANGE", "1")
    list(batches)
    loader._kept.wait()
    assert not list((tmp_path / "kept").glob("*.samples"))
    list(loader)  # some were read before the change, and are read anew
    loader._kept.wait()
    right(Numbers(data), tmp_path / "kept")  # what is saved by now is what the file holds by now


@pytest.mark.parametrize("loaded", [True, False])
def test_a_file_that_changes_between_two_passes_is_read_anew(loaded, data, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "_LOOK_SHARE", 1e9)
    if loaded:
        right(Numbers(data), tmp_path / "kept")
    _, batches = walked(Numbers(data), tmp_path / "kept", passes=4, between=lambda: write(data, 100))
    write(data, 0)
    old = plain(Numbers(data), 4)
    write(data, 100)
    new = plain(Numbers(data), 4)
    assert same(batches[0], old[0])
    assert same(batches[1:], new[1:])


def test_a_file_that_changes_while_its_samples_are_served_ends_the_serving(data, tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "_LOOK_SHARE", 1e9)
    right(Numbers(data), tmp_path / "kept")
    loader = compile_loader(DataLoader(Numbers(data), batch_size=5), folder=tmp_path / "kept")
    batches = iter(loader)
    next(batches)
    write(data, 100)
    cache = loader._kept.of(loader._plain)
    cache._pace.next_s = 0.0
    assert float(next(batches)[0][0, 0, 0]) == 105.0
    assert "has changed" in loader.explain()


@pytest.mark.parametrize(
    "other", [Images(12, programs.viewed), Images(13), Images(12, form="dict"), Images(12, side=6)]
)
def test_another_transform_or_source_gives_another_entry(other, tmp_path):
    right(Images(12, programs.as_float64, form="named"), tmp_path, num_workers=0, collate_fn=list_of)
    before = set(tmp_path.glob("*.samples"))
    right(other, tmp_path, collate_fn=list_of)
    assert len(set(tmp_path.glob("*.samples")) - before) == len(before) == 1


def list_of(samples):
    return torch.utils.data.default_collate(samples)


def test_a_data_set_without_a_key_is_kept_in_memory_only(tmp_path):
    dataset = Images(12, form="dict")
    dataset.handle = memoryview(b"no state to be told")
    loader, _ = walked(dataset, tmp_path, collate_fn=list_of)
    assert "not saved: Images.handle" in loader.explain()
    assert not list(tmp_path.glob("*.samples"))


# -- several processes, and the end of one ------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_at_once_are_both_right_and_leave_one_entry(data, tmp_path):
    def work():
        for _ in range(3):
            right(Numbers(data), tmp_path / "kept")

    children = [FORK.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0]
    left = {path.name for path in (tmp_path / "kept").iterdir()}
    assert left == {".lock", ".gitignore", entry(tmp_path / "kept").name}
    assert "from" in right(Numbers(data), tmp_path / "kept")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_ended_while_it_saves_leaves_nothing_that_is_served(how, data, tmp_path):
    def work():
        plain_write = entries.write

        def slow(plan, file, pace):
            (tmp_path / "saving").touch()
            time.sleep(0.3)
            plain_write(plan, file, pace)

        entries.write = slow
        signal.signal(signal.SIGINT, signal.default_int_handler)
        walked(Numbers(data), tmp_path / "kept")

    child = FORK.Process(target=work)
    child.start()
    while not (tmp_path / "saving").exists():
        time.sleep(0.01)
    with open(os.devnull, "w"):
        os.kill(child.pid, how)
    child.join(60)
    assert not list((tmp_path / "kept").glob("*.samples"))
    assert "saved in" in right(Numbers(data), tmp_path / "kept")
    assert not list((tmp_path / "kept").glob("*.partial"))


def test_work_that_takes_too_long_at_the_exit_is_given_up(monkeypatch):
    monkeypatch.setattr(background_writes, "_AT_EXIT_S", 0.05)
    behind, seen = BackgroundWrites(), []

    def endless():
        try:
            while True:
                behind.pause()
                time.sleep(0.001)
        except OSError as error:
            seen.append(error.strerror)

    behind.do(endless)
    behind.do(lambda: seen.append("more"))
    behind.end()
    assert seen == ["given up: the process ends"]
    assert not [thread for thread in threading.enumerate() if thread.name == "flatout-saving"]


def test_work_that_raises_does_not_end_the_thread_before_the_next():
    behind, seen = BackgroundWrites(), []
    behind.do(lambda: 1 / 0)
    behind.do(lambda: seen.append(1))
    assert behind.wait(10)
    assert seen == [1]


# -- memory -------------------------------------------------------------------------------------------------------


class Large(Dataset):
    """Samples of 256 KiB each, 64 MiB in all."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((65_536,), float(index))


def test_what_does_not_fit_into_the_budget_is_kept_in_a_file_from_the_first_pass_on(tmp_path):
    told = right(Images(LENGTH, form="dict"), tmp_path, max_bytes=8000, passes=3)
    assert "20 batches came from there; saved in" in told
    assert "from" in right(Images(LENGTH, form="dict"), tmp_path, max_bytes=100)
    assert "left as it is" in right(Images(LENGTH, form="dict"), None, max_bytes=8000)


MEMORY = """
import sys, resource, torch
from torch.utils.data import DataLoader
from tests.unit.pipeline.cache.disk.test_disk_cache import Large
from flatout.pipeline import compile_loader

def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

loader = compile_loader(DataLoader(Large(), batch_size=4), folder=sys.argv[1], max_bytes=8 << 20)
if sys.argv[2] == "limited":
    taken = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, ((taken << 10) + (48 << 20),) * 2)
before, most = own(), 0
for _ in range(2):
    for number, batch in enumerate(loader):
        assert float(batch[3, 7]) == 4 * number + 3
        most = max(most, own())
loader._kept.wait()
print((most - before) >> 10, loader.explain())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.full
def test_the_memory_taken_stays_within_the_budget_while_files_are_filled_and_served(tmp_path):
    for wanted in ("saved in", "from"):
        number, told = process(tmp_path, "free", script=MEMORY).split(maxsplit=1)
        assert int(number) < 8 + 24  # MiB; a few batches and the allocator's own
        assert wanted in told


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.full
def test_without_address_space_for_a_file_the_script_s_own_loader_goes_on(tmp_path):
    assert "left as it is" in process(tmp_path, "limited", script=MEMORY)
    process(tmp_path, "free", script=MEMORY)
    assert "left as it is" in process(tmp_path, "limited", script=MEMORY)


def open_things(folder):
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    links = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(each))
    threads = [thread.name for thread in threading.enumerate()]
    return sorted([*(line for line in maps if str(folder) in line), *(x for x in links if str(folder) in x), *threads])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.full
def test_many_iterators_leave_no_thread_no_handle_and_no_mapping(data, tmp_path):
    right(Numbers(data), tmp_path / "kept")
    before = open_things(tmp_path)
    for number in range(examples(200)):
        loader = compile_loader(DataLoader(Numbers(data), batch_size=5), folder=tmp_path / "kept", max_bytes=number)
        for place, _ in enumerate(loader):
            if place == number % 7:
                break
    del loader
    assert open_things(tmp_path) == before
