"""Checkpoints written in the background: the same file, seen by nobody before it is whole, never lost in silence.

Modules: flatout.fixes.checkpoint.file_accesses, flatout.fixes.checkpoint.process_endings.
"""

import ctypes
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.unit.fixes.training import Images, same_bits, train, under

from flatout.fixes.checkpoint.snapshot import Snapshot

pytestmark = pytest.mark.slow

BIG = 200_000


@pytest.fixture
def gate(monkeypatch):
    """Hold the writer back until the gate opens by itself, a moment after somebody has begun to wait for it."""
    opened = threading.Event()
    write = Snapshot.write

    def held(snapshot, path):
        opened.wait(0.2)
        write(snapshot, path)

    monkeypatch.setattr(Snapshot, "write", held)
    yield opened
    opened.set()


def content(path):
    return torch.load(path, weights_only=False)["x"][0].item()


ACCESSES = {
    "torch.load": lambda path: content(path) == 1,
    "open": lambda path: Path(path).read_bytes()[:2] == b"PK",
    "pathlib": lambda path: Path(path).stat().st_size > BIG,
    "exists": lambda path: os.path.exists(path) and os.path.isfile(path) and os.access(path, os.R_OK),
    "getsize": lambda path: os.path.getsize(path) > BIG,
    "relative": lambda path: os.path.exists(os.path.basename(path)),
    "descriptor of the folder": lambda path: os.stat(os.path.basename(path), dir_fd=here()).st_size > BIG,
    "listdir": lambda path: os.listdir(os.path.dirname(path)) == ["model.pt"],
    "listdir of a descriptor": lambda path: os.listdir(here()) == ["model.pt"],
    "glob": lambda path: list(Path(path).parent.glob("*")) == [Path(path)],
    "walk": lambda path: [files for _, _, files in os.walk(os.path.dirname(path))] == [["model.pt"]],
    "rename": lambda path: os.replace(path, path + ".old") is None and content(path + ".old") == 1,
    "copy": lambda path: content(shutil.copy(path, path + ".copy")) == 1,
    "remove": lambda path: os.remove(path) is None and os.listdir(".") == [],
    "remove the folder": lambda path: shutil.rmtree(os.path.dirname(path)) is None,
    "another program": lambda path: subprocess.run(["test", "-s", path], check=False).returncode == 0,
    "shell": lambda path: os.system(f"test -s {path}") == 0,
    "link": lambda path: os.link(path, path + ".link") is None and content(path + ".link") == 1,
    "numpy": lambda path: len(__import__("numpy").fromfile(path, dtype="u1")) > BIG,
    "forked child": lambda path: in_a_child(lambda: content(path) == 1 and os.path.getsize(path) > BIG),
}


def here():
    return os.open(".", os.O_RDONLY)


def in_a_child(check):
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ACCESSES)
@pytest.mark.few(5)
def test_whoever_looks_at_a_file_sees_it_whole(name, workdir, gate):
    with under("async-checkpoint") as process:
        path = str(workdir / "model.pt")
        torch.save({"x": torch.zeros(3)}, path)
        torch.save({"x": torch.ones(BIG // 4)}, path)
        assert ACCESSES[name](path)
        assert process.site.hits["torch.save"] == 2


def test_the_file_holds_the_moment_of_saving_and_is_the_same_to_the_byte(workdir, gate):
    model, optimizer, _ = train()
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "list": [1, {"a": (2, "x")}]}
    os.mkdir("plain")
    torch.save(checkpoint, "plain/model.pt")
    torch.save(model, "plain/whole.pt")
    with under("async-checkpoint"):
        torch.save(checkpoint, "model.pt")
        torch.save(model, Path("whole.pt"))
        with torch.no_grad():
            model.last.weight.zero_()
        checkpoint["list"].append(3)
    assert Path("model.pt").read_bytes() == Path("plain/model.pt").read_bytes()
    assert Path("whole.pt").read_bytes() == Path("plain/whole.pt").read_bytes()
    assert sorted(os.listdir(".")) == ["model.pt", "plain", "whole.pt"]


def test_an_old_file_keeps_its_permissions_and_a_link_its_target(workdir):
    torch.save({"x": torch.zeros(1)}, "real.pt")
    os.chmod("real.pt", 0o640)
    os.symlink("real.pt", "latest.pt")
    with under("async-checkpoint") as process:
        torch.save({"x": torch.ones(1)}, "latest.pt")
        assert content("real.pt") == 1
        assert process.site.hits == {"torch.save": 1}
    assert os.path.islink("latest.pt") and os.stat("real.pt").st_mode & 0o777 == 0o640


def test_the_permissions_of_a_new_file_are_those_that_torch_gives(workdir):
    torch.save({}, "plain.pt")
    with under("async-checkpoint"):
        torch.save({}, "ours.pt")
    assert os.stat("plain.pt").st_mode == os.stat("ours.pt").st_mode


def test_what_is_no_path_and_what_cannot_be_replaced_is_left_to_torch(workdir):
    torch.save({}, "one.pt")
    os.link("one.pt", "other.pt")
    with under("async-checkpoint") as process:
        with open("file.pt", "wb") as file:
            torch.save({"x": torch.ones(1)}, file)
        torch.save({"x": torch.ones(1)}, "one.pt")
        torch.save({"x": torch.ones(1)}, "legacy.pt", _use_new_zipfile_serialization=False)
        assert process.site.hits == {}
    assert content("file.pt") == content("other.pt") == content("legacy.pt") == 1


def test_errors_of_the_call_are_raised_by_the_call_as_ever(workdir):
    torch.save({}, "before.pt")
    for call in (
        lambda: torch.save({}, "missing/model.pt"),
        lambda: torch.save({}, "."),
        lambda: torch.save({"x": lambda: 1}, "unpicklable.pt"),
        lambda: torch.save(),
    ):
        with pytest.raises(Exception) as plain:
            call()
        with under("async-checkpoint"), pytest.raises(type(plain.value)) as ours:
            call()
        assert str(ours.value).split("\n")[0][:40] == str(plain.value).split("\n")[0][:40]


def fill(monkeypatch, error):
    def write(snapshot, path):
        raise error

    monkeypatch.setattr(Snapshot, "write", write)


@pytest.mark.parametrize("access", ["torch.load", "exists", "listdir"])
def test_an_error_of_the_writer_is_raised_at_the_next_access(access, workdir, monkeypatch):
    Path("model.pt").write_bytes(b"old")
    with under("async-checkpoint") as process:
        monkeypatch.setattr(Snapshot, "write", lambda snapshot, path: 1 / threading.Event().wait(0.2))
        torch.save({"x": torch.ones(1)}, "model.pt")
        with pytest.raises(ZeroDivisionError):
            ACCESSES[access](str(workdir / "model.pt"))
        assert Path("model.pt").read_bytes() == b"old"
        assert os.listdir(".") == ["model.pt"]
        assert not process.site.failure


def test_an_error_of_the_writer_is_raised_at_the_next_save(workdir, monkeypatch):
    with under("async-checkpoint") as process:
        with monkeypatch.context() as during:
            fill(during, OSError(28, "No space left on device"))
            torch.save({}, "model.pt")
            process.site.disable()
            process.site.enable()
        with pytest.raises(OSError, match="No space left"):
            torch.save({}, "model.pt")
        torch.save({"x": torch.ones(1)}, "model.pt")
    assert content("model.pt") == 1


def test_what_does_not_fit_into_memory_twice_is_written_at_once(workdir, monkeypatch):
    monkeypatch.setattr("flatout.fixes.async_checkpoint._free_memory", lambda: 1000)
    with under("async-checkpoint") as process:
        torch.save({"x": torch.ones(BIG)}, "model.pt")
        assert process.site.hits == {}
    assert content("model.pt") == 1


def test_many_files_are_written_in_order_and_few_are_held(workdir, gate):
    with under("async-checkpoint"):
        for number in range(12):
            torch.save({"x": torch.full((3,), float(number))}, f"{number % 2}.pt")
        assert content("0.pt") == 10
        assert content("1.pt") == 11


def test_training_goes_on_to_the_same_bits(workdir):
    def save(step):
        model and torch.save(model.state_dict(), "model.pt")

    model = None
    plain, _, losses = train(steps=6)
    with under("async-checkpoint"):
        model = Images()
        model, _, same = train(steps=6, model=None, before_step=save)
    assert losses == same
    assert same_bits(model.state_dict(), plain.state_dict())


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
install_fixes([Selection("async-checkpoint")], Seams(), ModuleWatch(EventLog(nothing, nothing)))
{body}
"""


def run(body, workdir):
    script = workdir / "script.py"
    script.write_text(SCRIPT.format(path=sys.path, body=body))
    return subprocess.run([sys.executable, "script.py"], cwd=workdir, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os._exit(0)", "1 / 0", "import atexit; atexit.register(again)"])
@pytest.mark.few(1)
def test_the_end_of_the_process_waits_for_the_file(end, workdir):
    again = "again = lambda: torch.save({'x': torch.ones(5_000_000)}, 'again.pt')\n"
    done = run(again + "torch.save({'x': torch.ones(5_000_000)}, 'model.pt')\n" + end, workdir)
    assert done.returncode == {"sys.exit(3)": 3, "1 / 0": 1}.get(end, 0), done.stderr
    assert content(workdir / "model.pt") == 1
    assert "again" not in end or content(workdir / "again.pt") == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "os._exit(0)"])
@pytest.mark.few(1)
def test_a_disk_that_fills_up_after_the_save_shows_in_the_exit_status(end, workdir):
    slow = "from flatout.fixes.checkpoint.snapshot import Snapshot as S\nimport time\nwrite = S.write\n"
    slow += "S.write = lambda *a: (time.sleep(0.5), write(*a))\n"
    limit = "import ctypes; ctypes.CDLL(None).setrlimit(1, (ctypes.c_ulong * 2)(1_000_000, 1_000_000))\n"
    done = run(
        slow + "torch.save({'x': torch.ones(5_000_000)}, 'model.pt')\n" + limit + "print('done')\n" + end, workdir
    )
    assert done.returncode == 1
    assert "a checkpoint could not be written" in done.stderr
    assert sorted(os.listdir(workdir)) == ["script.py"]


def test_what_was_saved_before_a_limit_of_files_is_whole(workdir):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
    done = run("torch.save({'x': torch.ones(5_000_000)}, 'model.pt')\n" + limit, workdir)
    assert done.returncode == 0, done.stderr
    assert content(workdir / "model.pt") == 1


@pytest.mark.parametrize(
    "act",
    [
        "os.closerange(3, 1000)",
        pytest.param(
            "os.setgid(65534); os.setuid(65534)", marks=pytest.mark.skipif(os.geteuid() != 0, reason="not root")
        ),
        pytest.param("os.chroot('.')", marks=pytest.mark.skipif(os.geteuid() != 0, reason="not root")),
    ],
)
@pytest.mark.few(1)
def test_what_was_saved_before_the_script_lets_go_of_files_or_rights_is_whole(act, workdir):
    save = "torch.save({'x': torch.ones(5_000_000)}, 'one.pt')\n"
    done = run(f"{save}import os\n{act}\n", workdir)
    assert done.returncode == 0, done.stderr
    assert content(workdir / "one.pt") == 1
    assert sorted(os.listdir(workdir)) == ["one.pt", "script.py"]


def test_a_script_that_closes_all_its_files_saves_again(workdir):
    saves = [f"torch.save({{'x': torch.ones({number})}}, '{name}.pt')" for name, number in (("one", BIG), ("two", 9))]
    done = run("import os\n" + "\nos.closerange(3, 1000)\n".join(saves), workdir)
    assert done.returncode == 0, done.stderr
    assert content(workdir / "one.pt") == content(workdir / "two.pt") == 1


def scripted(path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)


def scripted_by_itself(path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(path)


def by_native_code(path):
    libc = ctypes.CDLL(None)
    file = libc.open(os.fsencode(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    libc.write(file, b"native", 6)
    libc.close(file)


@pytest.mark.parametrize("write", [scripted, scripted_by_itself, by_native_code])
@pytest.mark.parametrize("old", [False, True])
def test_what_is_written_there_after_it_was_saved_stays(write, old, workdir, gate, capfd):
    if old:
        torch.save({"x": torch.zeros(10)}, "model.pt")
    with under("async-checkpoint"):
        torch.save({"x": torch.ones(BIG)}, "model.pt")
        write("model.pt")
    assert os.path.getsize("model.pt") < BIG
    said = "was written again after torch.save: that stays" in capfd.readouterr().err
    assert said == (write is by_native_code)


def test_one_file_saved_again_and_again_and_touched_meanwhile_is_the_last(workdir, gate):
    with under("async-checkpoint"):
        for number in range(6):
            torch.save({"x": torch.full((BIG,), float(number))}, "model.pt")
            ctypes.CDLL(None).utimensat(-100, b"model.pt", None, 0)
    assert content("model.pt") == 5


@pytest.mark.slow
def test_a_disk_that_takes_no_such_file_raises_where_the_script_saves(workdir):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
    save = "try: torch.save({'x': torch.ones(5_000_000)}, 'model.pt')\nexcept RuntimeError: open('raised', 'w')\n"
    done = run(limit + save + "os._exit(0)", workdir)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(workdir)) == ["model.pt", "raised", "script.py"]


def test_where_another_process_of_the_training_may_look_torch_writes_at_once(workdir, gate):
    context = multiprocessing.get_context("fork")
    with under("async-checkpoint") as process:
        evaluator = context.Process(target=threading.Event().wait, args=(60,))
        evaluator.start()
        torch.save({"x": torch.ones(1)}, "seen.pt")
        assert process.site.hits == {}
        evaluator.kill()
        evaluator.join()
        loader = torch.utils.data.DataLoader(range(8), num_workers=1, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        torch.save({"x": torch.ones(1)}, "beside workers.pt")
        assert process.site.hits == {"torch.save": 1}
        del iterator, loader
    assert content("seen.pt") == content("beside workers.pt") == 1


def test_the_time_of_a_file_is_that_of_saving(workdir, gate):
    with under("async-checkpoint"):
        torch.save({"x": torch.ones(1)}, "model.pt")
        Path("log.json").write_text("saved")
        assert os.stat("model.pt").st_mtime_ns <= os.stat("log.json").st_mtime_ns


def test_a_script_sees_the_default_where_a_handler_of_ours_waits_for_files(workdir):
    before = signal.getsignal(signal.SIGUSR1)
    with under("async-checkpoint") as process:
        torch.save({"x": torch.ones(100_000)}, "model.pt")
        assert signal.getsignal(signal.SIGUSR1) is before is signal.SIG_DFL
        called = []
        assert signal.signal(signal.SIGUSR1, lambda *one: called.append(one)) is signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(called) == 1
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        process.site.disable()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_several_ranks_are_left_alone(monkeypatch, workdir):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(AssertionError), under("async-checkpoint"):
        pass


def test_standard_functions_go_on_working_with_what_they_wrap(workdir):
    with under("async-checkpoint"):
        os.mkdir("tree")
        Path("tree/file").touch()
        os.symlink("file", "tree/link")
        shutil.copytree("tree", "copy", symlinks=True)
        shutil.copystat("tree/link", "copy/link", follow_symlinks=False)
        assert os.path.islink("copy/link")
        shutil.rmtree("tree")
    assert os.stat is not None and pickle.loads(pickle.dumps(os.stat)) is os.stat
