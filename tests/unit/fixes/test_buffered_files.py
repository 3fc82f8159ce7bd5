"""Text files written a moment later: the same bytes, seen by everybody in the process as if they were written at once.

Modules: flatout.fixes.text_files.text_file, flatout.fixes.text_files.write_behind,
flatout.fixes.text_files.written_handles, flatout.fixes.text_files.gathered_writer,
flatout.fixes.text_files.opened_texts, flatout.fixes.text_files.running_programs.
"""

import csv
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.unit.fixes.training import same_bits, train, under

from flatout.fixes.buffered_files import FIX, choices
from flatout.fixes.text_files import text_file, write_behind
from flatout.rules.core.example import example, line
from flatout.schema.phase import Phase

pytestmark = pytest.mark.slow
# ruff: noqa: SIM115 - files that stay open are what it is about

FIX_NAME = "buffered-files"
_open = open


@pytest.fixture
def process(workdir, monkeypatch):
    """Files under the fix, in a folder of their own, with a thread that writes only when it is told to."""
    monkeypatch.setattr(write_behind, "DELAY_S", 1000)
    with under(FIX_NAME) as process:
        yield process
        assert not process.site.failure


def on_disk(path):
    """Return what another process would read: one that is forked settles first, so that ours reads quietly."""
    number = threading.get_ident()
    busy = _behind().threads.busy
    busy.add(number)
    try:
        return Path(path).read_bytes()
    finally:
        busy.discard(number)


def _behind():
    """Return what the fix knows of files."""
    import gc

    known = (each for each in gc.get_objects() if type(each) is write_behind.WriteBehind)
    return max(known, key=lambda each: (each.waits, bool(each.pending), id(each)))


def steps(count, act):
    """Do something in each of some steps of a training."""
    x = torch.ones(1, requires_grad=True)
    for step in range(count):
        x.sum().backward()
        act(step)


def test_text_that_was_flushed_waits_and_whoever_opens_the_file_finds_it(process):
    with open("log.txt", "w") as file:
        for step in range(5):
            file.write(f"{step}\n")
            file.flush()
        assert on_disk("log.txt") == b""
        assert Path("log.txt").read_text() == "0\n1\n2\n3\n4\n"
        assert process.site.hits["written later"] == 1


def appended(step):
    with open("log.txt", "a") as file:
        file.write(f"{step}\n")


def test_a_file_that_is_opened_in_each_step_is_opened_once_for_many(process):
    steps(10, appended)
    assert on_disk("log.txt") == b"0\n1\n2\n"
    assert Path("log.txt").read_text() == "".join(f"{step}\n" for step in range(10))
    assert process.site.hits["written later"] == 1


@pytest.mark.parametrize("other", [lambda path: open(path, "a"), lambda path: Path(path).open("a", buffering=1)])
def test_a_file_that_was_emptied_and_is_opened_in_another_way_keeps_what_is_written_then(process, other):
    def act(step):
        with open("state.txt", "w") as file:
            file.write(str(step) if step < 8 else "")

    steps(9, act)
    with other("state.txt") as file:
        file.write("added\n")
    _behind().settle()
    assert Path("state.txt").read_text() == "added\n"


def test_of_a_file_that_is_written_anew_in_each_step_the_last_content_is_there(process):
    def act(step):
        with open("state.json", "w") as file:
            json.dump({"step": step, "name": "x" * step}, file)

    steps(9, act)
    assert json.loads(on_disk("state.json"))["step"] == 2
    with open("state.json") as file:
        assert json.load(file) == {"step": 8, "name": "x" * 8}


LOOKS = {
    "read": lambda path: Path(path).read_text(),
    "stat": lambda path: os.stat(path).st_size == len(on_disk(path)) and text_of(path),
    "relative": lambda path: os.path.getsize(os.path.basename(path)) and on_disk(path).decode(),
    "list": lambda path: os.listdir(os.path.dirname(path)) and on_disk(path).decode(),
    "folder": lambda path: os.listdir(os.open(".", os.O_RDONLY)) and on_disk(path).decode(),
    "copy": lambda path: text_of(shutil.copy(path, "copy.txt")),
    "rename": lambda path: os.replace(path, "moved.txt") or on_disk("moved.txt").decode(),
    "hard link": lambda path: os.link(path, "other.txt") or on_disk("other.txt").decode(),
    "symbolic link": lambda path: os.symlink(path, "link.txt") or text_of("link.txt"),
    "descriptor": lambda path: os.read(os.open(path, os.O_RDONLY), 1000).decode(),
    "program": lambda path: subprocess.run(["cat", path], capture_output=True, text=True, check=True).stdout,
    "shell": lambda path: os.system(f"cp {path} copy.txt") == 0 and on_disk("copy.txt").decode(),
    "remove the folder": lambda path: (
        shutil.copytree(".", "../all", dirs_exist_ok=True) and on_disk("../all/log.txt").decode()
    ),
    "fork": lambda path: in_a_child(lambda: on_disk_plainly(path)) and on_disk(path).decode(),
    "signal": lambda path: os.kill(os.getpid(), 0) or on_disk(path).decode(),
}


def text_of(path):
    return Path(path).read_text()


def on_disk_plainly(path):
    with _open(path, "rb") as file:
        return file.read().endswith(b"end\n")


def in_a_child(check):
    child = os.fork()
    if not child:
        os._exit(0 if check() else 3)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("way", ["open", "again and again"])
@pytest.mark.few(8)
def test_whoever_looks_finds_what_was_flushed(process, way, name):
    path = os.path.abspath("log.txt")
    if way == "open":
        file = open(path, "w")
        file.write("0\n1\n2\n3\n4\n")
    else:
        steps(5, appended)
        file = open(path, "a")
    file.write("end\n")
    file.flush()
    assert b"end" not in on_disk(path)
    assert LOOKS[name](path) == "0\n1\n2\n3\n4\nend\n"
    file.write("more\n")
    file.close()
    if name == "fork":  # from then on everything is written at once
        assert "forks itself" in process.site.failure
        process.site.failure = ""


def test_somebody_who_has_the_file_open_sees_each_flush(process):
    with open("log.txt", "w") as file:
        file.write("a\n")
        file.flush()
        with open("log.txt") as reader:
            assert reader.read() == "a\n"
            for word in ("b\n", "c\n"):
                file.write(word)
                file.flush()
                assert reader.read() == word


def test_a_reader_that_was_there_before_sees_each_flush(process):
    Path("log.txt").write_text("")
    reader = os.open("log.txt", os.O_RDONLY)
    steps(6, appended)
    assert os.read(reader, 100) == b"0\n1\n2\n3\n4\n5\n"
    with open("log.txt", "a") as file:
        file.write("x\n")
        file.flush()
        assert os.read(reader, 100) == b"x\n"
    os.close(reader)


def test_two_who_write_to_one_file_do_so_in_turn(process):
    steps(5, appended)
    one, two = open("log.txt", "a"), open("log.txt", "a")
    for step in range(4):
        one.write(f"one {step}\n")
        one.flush()
        two.write(f"two {step}\n")
        two.flush()
    one.close()
    two.close()
    expected = "".join(f"{step}\n" for step in range(5)) + "".join(f"one {n}\ntwo {n}\n" for n in range(4))
    assert Path("log.txt").read_text() == expected


def test_a_descriptor_that_the_script_keeps_is_written_to_in_turn(process):
    for opened in range(6):
        texts_step(process)
        with open("log.txt", "w" if opened % 2 else "a") as file:
            number = file.fileno()
            file.write("one\n")
            file.flush()
            os.write(number, b"two\n")
            file.write("three\n")
            file.flush()
            assert os.fstat(number).st_size == len(on_disk("log.txt"))
            assert on_disk("log.txt").endswith(b"one\ntwo\nthree\n")


def texts_step(process):
    torch.ones(1, requires_grad=True).sum().backward()


@pytest.fixture
def syncs(monkeypatch, workdir):
    """Note what is synced, before the fix takes `os.fsync`."""
    seen, plain = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: seen.append(number) or plain(number))
    return seen


def test_a_sync_waits_with_its_text_where_nobody_has_the_descriptor(syncs, process):
    with open("log.txt", "w") as file:
        for step in range(100):
            file.write(f"{step}\n")
            file.flush()
            os.fsync(file.fileno())
        assert syncs == []
        assert len(Path("log.txt").read_text().split()) == 100
        assert len(syncs) == 1
        for keeps in range(3):
            number = file.fileno()
            os.fsync(number)
            file.write(f"{keeps}\n")
            file.flush()
            assert len(syncs) == 2 + keeps
            assert on_disk("log.txt").endswith(f"{keeps}\n".encode())


def test_a_file_that_is_synced_and_closed_in_each_step_is_synced_once(syncs, process):
    def act(step):
        with open("log.txt", "a") as file:
            file.write(f"{step}\n")
            file.flush()
            os.fsync(file.fileno())

    steps(30, act)
    assert on_disk("log.txt") == "".join(f"{step}\n" for step in range(30)).encode()
    assert syncs == []
    assert os.path.exists("log.txt")
    assert len(syncs) == 1


def test_other_syncs_are_done_at_once(syncs, process):
    with open("log.bin", "wb") as file:
        os.fsync(file)
        os.fsync(file.fileno())
    with open("log.txt", "w") as file, pytest.raises(OSError):
        os.fsync(file.fileno() + 1000)
    assert len(syncs) == 3


WRITERS = {
    "print": lambda file, step: print(step, step * 0.5, sep=";", file=file, flush=True),
    "csv": lambda file, step: csv.writer(file).writerow([step, "a,b"]) and file.flush(),
    "lines": lambda file, step: file.writelines([f"{step}\n", "x\r\n"]),
    "json": lambda file, step: json.dump({"step": step}, file),
    "letters": lambda file, step: file.write("äß\u20ac\n" * step),
    "places": lambda file, step: file.write(f"{file.tell()}\n"),
    "back": lambda file, step: file.write("abc") and file.seek(0) == 0 and file.write(f"{step}"),
    "cut": lambda file, step: file.write("abcdef") and file.truncate(3),
    "below": lambda file, step: [file.write("abc"), file.flush(), file.buffer.write(b"d"), file.buffer.flush()],
    "raw": lambda file, step: [file.write("abc"), file.flush(), file.buffer.raw.write(b"d")],
    "large": lambda file, step: file.write("x" * 100_000),
}
OPTIONS = {
    "w": {"mode": "w"},
    "a": {"mode": "a"},
    "at": {"mode": "at", "newline": ""},
    "by line": {"mode": "w", "buffering": 1},
    "latin": {"mode": "a", "encoding": "cp1252", "errors": "replace", "newline": "\r\n"},
    "with a mark": {"mode": "w", "encoding": "utf-16"},
    "update": {"mode": "w+"},
    "bytes": {"mode": "w", "path": b"log.txt"},
    "pathlib": {"mode": "a", "path": Path("log.txt")},
}


def written(options, write, *, again):
    """Return what a file holds after nine steps in which it is written to, opened once or in each of them."""
    options = dict(options)
    path = options.pop("path", "log.txt")
    file = None

    def act(step):
        nonlocal file
        if file is None or again:
            file = open(path, **options)
        write(file, step)
        if again:
            file.close()

    steps(9, act)
    file.close()
    return Path("log.txt").read_bytes()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.few(40)
def test_a_file_holds_the_same_bytes(workdir, options, write, again):
    plain = written(OPTIONS[options], WRITERS[write], again=again)
    os.remove("log.txt")
    with under(FIX_NAME) as process:
        assert written(OPTIONS[options], WRITERS[write], again=again) == plain
        assert not process.site.failure


def test_handlers_of_logging_and_pathlib_are_the_scripts_files(process):
    handler = logging.FileHandler("log.txt")
    for step in range(3):
        handler.emit(logging.LogRecord("x", 20, "x.py", 1, f"step {step}", None, None))
    assert on_disk("log.txt") == b""
    steps(6, lambda step: Path("state.txt").write_text(f"{step}"))
    assert on_disk("state.txt") == b"2"
    handler.close()
    assert on_disk("log.txt") == b"step 0\nstep 1\nstep 2\n"


def test_a_file_looks_like_any_other(process):
    appended(0)
    steps(5, appended)
    plain = io.TextIOWrapper(io.BufferedWriter(io.FileIO("plain.txt", "w")), "utf-8")
    for file in (open("log.txt", "a"), open("other.txt", "w")):
        assert type(file) is io.TextIOWrapper
        assert (file.name in ("log.txt", "other.txt"), file.closed, file.encoding.lower()) == (True, False, "utf-8")
        assert (file.readable(), file.writable(), file.seekable()) == (False, True, True)
        assert file.mode in ("a", "w")
        for read in (file.read, plain.read):
            with pytest.raises(io.UnsupportedOperation):
                read()
        file.close()
        file.close()
        with pytest.raises(ValueError, match="closed file"):
            file.write("x")
    plain.close()


def test_errors_of_opening_are_raised_where_a_folder_goes_away(process):
    os.mkdir("runs")

    def act(step):
        if step == 6:
            shutil.rmtree("runs")
        with open("runs/log.txt", "a") as file:
            file.write("x\n")

    with pytest.raises(FileNotFoundError):
        steps(9, act)
    with pytest.raises(FileNotFoundError):
        open("runs/other.txt", "w")
    with pytest.raises(ValueError):
        open("log.txt", "q")


def test_names_mean_other_files_in_another_folder(process):
    os.mkdir("other")
    steps(6, appended)
    os.chdir("other")
    steps(6, appended)
    os.chdir("..")
    assert on_disk("log.txt") == on_disk("other/log.txt") == b"0\n1\n2\n3\n4\n5\n"


def test_switched_off_everything_is_written_at_once(process):
    file = open("log.txt", "w")
    file.write("a\n")
    file.flush()
    steps(6, lambda step: Path("state.txt").write_text(f"{step}"))
    process.site.disable()
    assert (on_disk_off("log.txt"), on_disk_off("state.txt")) == (b"a\n", b"5")
    file.write("b\n")
    file.flush()
    Path("state.txt").write_text("x")
    assert (on_disk_off("log.txt"), on_disk_off("state.txt")) == (b"a\nb\n", b"x")
    process.site.enable()
    file.write("c\n")
    file.flush()
    assert on_disk("log.txt") == b"a\nb\n"
    file.close()


def on_disk_off(path):
    return Path(path).read_bytes()


def test_the_thread_writes_within_a_moment(workdir, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 0.01)
    with under(FIX_NAME) as process, open("log.txt", "w") as file:
        file.write("a\n")
        file.flush()
        for _ in range(500):
            if on_disk("log.txt"):
                break
            threading.Event().wait(0.01)
        assert on_disk("log.txt") == b"a\n"
        assert process.site.hits == {"written later": 1}


def test_a_full_disk_shows_at_the_next_flush(process):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = open("log.txt", "w")
    file.write("a\n")
    file.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        file.write("b\nc\nd\n")
        file.flush()
        os.path.exists("log.txt")
        with pytest.raises(OSError):
            file.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.close()
    assert on_disk("log.txt") == b"a\nb\nc\nd\n"


def test_another_process_of_the_training_ends_it(workdir):
    import multiprocessing

    with under(FIX_NAME) as process:
        file = open("log.txt", "w")
        other = multiprocessing.get_context("fork").Process(target=print)
        other.start()
        other.join()
        assert "another process" in process.site.failure
        file.write("a\n")
        file.flush()
        assert on_disk_off("log.txt") == b"a\n"
        file.close()


def test_workers_of_a_loader_end_nothing(process):
    with open("log.txt", "w") as file:
        for number in torch.utils.data.DataLoader(range(6), num_workers=1):
            file.write(f"{number.item()}\n")
            file.flush()
        assert on_disk("log.txt") == b""
    assert on_disk("log.txt") == b"0\n1\n2\n3\n4\n5\n"


def test_text_is_not_lost_where_writing_it_is_interrupted(process, monkeypatch):
    steps(6, appended)
    write, calls = os.write, []

    def interrupted(number, data):
        calls.append(number)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return write(number, data)

    monkeypatch.setattr(text_file, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        os.stat("log.txt")
    os.stat("log.txt")
    assert on_disk("log.txt") == b"0\n1\n2\n3\n4\n5\n"


def test_a_training_that_logs_each_step_is_the_same(workdir):
    def logging_step(step):
        appended(step)
        with open("state.json", "w") as file:
            json.dump({"step": step}, file)

    plain, _, losses = train(steps=8, before_step=logging_step)
    expected = on_disk_off("log.txt"), on_disk_off("state.json")
    os.remove("log.txt")
    with under(FIX_NAME):
        ours, _, same = train(steps=8, before_step=logging_step)
    assert losses == same
    assert same_bits(ours.state_dict(), plain.state_dict())
    assert (on_disk_off("log.txt"), on_disk_off("state.json")) == expected


SCRIPT = """
import sys, os
sys.path[:0] = {path!r}
import torch
from flatout.fixes.core.apply import install_fixes
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.core.seams import Seams
from flatout.probe.core.event_log import EventLog
from flatout.schema.trial import Selection
nothing = lambda one: None
install_fixes([Selection("buffered-files")], Seams(), ModuleWatch(EventLog(nothing, nothing)))
file = open("log.txt", "w")
for step in range(9):
    torch.ones(1, requires_grad=True).sum().backward()
    file.write("x\\n")
    file.flush()
    with open("again.txt", "a") as again:
        again.write("y\\n")
{body}
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os._exit(0)", "1 / 0", "os.kill(os.getpid(), 9)", "os.abort()"])
@pytest.mark.few(2)
def test_the_end_of_the_process_finds_everything_written(end, workdir):
    (workdir / "script.py").write_text(SCRIPT.format(path=sys.path, body=end))
    done = subprocess.run([sys.executable, "script.py"], cwd=workdir, capture_output=True, text=True, check=False)
    assert done.returncode == {"sys.exit(3)": 3, "1 / 0": 1, "os.kill(os.getpid(), 9)": -9, "os.abort()": -6}.get(
        end, 0
    )
    assert on_disk_off("log.txt") == b"x\n" * 9
    assert on_disk_off("again.txt") == b"y\n" * 9


def recorded(tmp_path, text, **about):
    (tmp_path / "train.py").write_text(f"{text}\n")
    cost = line(1.0, (str(tmp_path / "train.py"), 1, "train"), phase=Phase.HOST, part="tail", **about)
    return example(step_ms=10, forward=5, lines=[cost]).run


@pytest.mark.parametrize(
    "text",
    [
        "with open(path, 'a') as file:",
        "file.write(f'{loss}')",
        "    log.flush()",
        "os.fsync(file.fileno())",
        "writer.writerow(row)",
        "json.dump(history, file)",
        "print(loss, file=log)",
        "logger.info('x')",
    ],
)
def test_it_is_offered_where_lines_that_write_text_cost_time(tmp_path, text):
    assert choices(recorded(tmp_path, text)) == ({},)
    assert {"HO001", "HO002"} <= set(FIX.addresses)


def test_it_is_not_offered_elsewhere(tmp_path):
    assert "no line of the script's" in FIX.unfit(recorded(tmp_path, "loss.backward()"))
    assert choices(recorded(tmp_path, "train()", leaf="logging")) == ({},)


# ------------------------------------------------------------------------------------- folders, and programs that run
def test_one_name_in_two_folders_means_two_files(process, monkeypatch):
    Path("sub").mkdir()
    for step in range(8):
        for folder in (".", "sub"):
            monkeypatch.chdir(folder)
            with open("log.txt", "a") as file:
                file.write(f"{step} in {folder}\n")
            monkeypatch.chdir(".." if folder == "sub" else ".")
        torch.ones(1, requires_grad=True).sum().backward()
    assert Path("log.txt").read_text() == "".join(f"{step} in .\n" for step in range(8))
    assert Path("sub/log.txt").read_text() == "".join(f"{step} in sub\n" for step in range(8))


def test_a_program_that_runs_is_never_behind_and_one_that_has_ended_is_forgotten(process):
    reader = "while read path; do wc -l < $path; done"
    with subprocess.Popen(["sh", "-c", reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          bufsize=1) as program:  # fmt: skip
        for step in range(8):
            with open("log.txt", "a") as file:
                file.write(f"{step}\n")
            program.stdin.write("log.txt\n")
            assert int(program.stdout.readline()) == step + 1
            torch.ones(1, requires_grad=True).sum().backward()
        program.stdin.close()
    waited = process.site.hits.get("written later", 0)
    for step in range(8):
        with open("log.txt", "a") as file:
            file.write(f"{step}\n")
        torch.ones(1, requires_grad=True).sum().backward()
    assert process.site.hits["written later"] > waited


def test_a_copy_of_the_process_that_the_script_forks_ends_it(workdir):
    with under(FIX_NAME) as process:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert "forks itself" in process.site.failure
