"""What a script does to its files, and that the folder afterwards looks as before: each case in a forked child."""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from flatout.engine.process.restore import restore_files
from flatout.probe.files.guarded_files import FileKeeper
from flatout.state_folder import journal_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def project(workdir):
    """A folder like a researcher's, with the recording's folder in it."""
    make_project(workdir)
    return workdir


def make_project(top):
    for name, text in {
        "checkpoint.pt": "old weights",
        "log.txt": "line 1\n",
        "results.csv": "a,b\n1,2\n",
        "out/best.pt": "best",
        "out/deep/er.txt": "deeper",
        "data/raw.bin": "raw",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
        os.utime(top / name, ns=(10**18 + 123_456_789, 10**18 + 987_654_321))
    (top / "log.txt").chmod(0o640)
    (top / "empty").mkdir(mode=0o750)
    (top / "latest.pt").symlink_to("checkpoint.pt")
    recording(top).joinpath("files").mkdir(parents=True)


def recording(top):
    return top / ".flatout" / "train.py" / "now"


def journal(top):
    return Path(journal_folder(str(recording(top))))


def picture(top):
    """Everything below `top` but recordings: kinds, modes, contents, and the times of files."""
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != ".flatout"]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                what = stat.S_IMODE(status.st_mode)
            else:
                with open(path, "rb") as file:
                    content = hashlib.sha1(file.read()).hexdigest()
                what = (content, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
            found[os.path.relpath(path, top)] = what
    return found


def in_child(act):
    """Run `act` in a forked child; return its exit code, negative for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            act()
            code = 0
        except OSError:
            pass  # as scripts meet them: the case itself asserts what matters
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def protected(top, act):
    """Run `act` in a child whose files are kept."""

    def run():
        os.chdir(top)
        FileKeeper(str(recording(top)), str(top)).install()
        act()

    return in_child(run)


# ------------------------------------------------------------------------------------------------- what scripts do


def overwrite():
    Path("checkpoint.pt").write_text("new weights")
    assert Path("checkpoint.pt").read_text() == "new weights"
    Path("checkpoint.pt").write_text("newer weights")
    assert Path("checkpoint.pt").read_text() == "newer weights"


def append():
    with open("log.txt", "a") as file:
        file.write("line 2\n")
    assert Path("log.txt").read_text() == "line 1\nline 2\n"


def write_in_the_middle():
    with open("data/raw.bin", "r+b") as file:
        file.seek(1)
        file.write(b"A")
    assert Path("data/raw.bin").read_text() == "rAw"


def replace_by_a_temporary():
    Path("out/best.pt.tmp").write_text("better")
    os.replace("out/best.pt.tmp", "out/best.pt")
    assert Path("out/best.pt").read_text() == "better"


def rotate_and_write_in_place():
    os.rename("checkpoint.pt", "checkpoint.prev.pt")
    with open("checkpoint.prev.pt", "r+") as file:
        file.write("OLD")
    with open("checkpoint.prev.pt", "w") as file:
        file.write("gone")
    assert Path("checkpoint.prev.pt").read_text() == "gone"
    assert not Path("checkpoint.pt").exists()


def write_through_a_link():
    Path("latest.pt").write_text("through the link")
    assert Path("checkpoint.pt").read_text() == "through the link"


def move_a_link():
    os.remove("latest.pt")
    os.symlink("out/best.pt", "latest.pt")
    assert Path("latest.pt").read_text() == "best"


def write_another_name_of_a_file():
    os.link("checkpoint.pt", "same.pt")
    with open("same.pt", "a") as file:
        file.write("!")
    assert Path("same.pt").read_text() == "old weights!"


def remove_and_write_again():
    os.remove("checkpoint.pt")
    assert not Path("checkpoint.pt").exists()
    Path("checkpoint.pt").write_text("again")
    os.remove("checkpoint.pt")


def new_folders():
    os.makedirs("runs/exp1/events")
    Path("runs/exp1/events/e.1").write_text("x")
    Path("runs/exp1/config.json").write_text("{}")


def remove_a_tree_and_make_it_anew():
    Path("out/best.pt").write_text("touched first")
    shutil.rmtree("out")
    assert not Path("out").exists()
    os.makedirs("out/deep")
    Path("out/deep/er.txt").write_text("other")
    Path("out/new.txt").write_text("new")


def remove_a_tree_twice():
    for _ in range(2):
        shutil.rmtree("out")
        os.mkdir("out")
        Path("out/best.pt").write_text("again")


def remove_an_empty_folder():
    os.rmdir("empty")


def rename_a_folder():
    Path("out/best.pt").write_text("before")
    os.rename("out", "out.bak")
    Path("out.bak/best.pt").write_text("after")
    Path("out.bak/new.txt").write_text("new")


def back_up_a_folder_and_start_anew():
    os.rename("out", "out.bak")
    os.makedirs("out/deep")
    Path("out/best.pt").write_text("fresh")
    Path("out/deep/er.txt").write_text("fresh")


def finish_a_folder_under_another_name():
    os.mkdir("tmp-checkpoint-1")
    Path("tmp-checkpoint-1/model.pt").write_text("m")
    os.rename("tmp-checkpoint-1", "checkpoint-1")
    shutil.rmtree("checkpoint-1")
    os.mkdir("tmp-checkpoint-1")
    Path("tmp-checkpoint-1/model.pt").write_text("n")
    os.rename("tmp-checkpoint-1", "checkpoint-1")


def swap_two_folders():
    os.rename("out", "between")
    os.rename("data", "out")
    os.rename("between", "data")
    Path("data/best.pt").write_text("swapped")
    Path("out/raw.bin").write_text("swapped")


def rename_onto_an_empty_folder():
    os.rename("out", "empty")


def fail_to_rename():
    with pytest.raises(OSError, match="not empty"):
        os.rename("out", "data")
    with pytest.raises(FileNotFoundError):
        Path("nowhere/file").write_text("")
    with pytest.raises(FileExistsError):
        Path("log.txt").open("x").close()


def move_out_of_the_project():
    shutil.move("out", "../elsewhere")
    assert Path("../elsewhere/best.pt").read_text() == "best"


def change_mode_and_times():
    os.chmod("log.txt", 0o600)
    os.utime("log.txt")
    Path("checkpoint.pt").touch()
    assert stat.S_IMODE(os.stat("log.txt").st_mode) == 0o600


def truncate():
    os.truncate("log.txt", 2)
    assert Path("log.txt").read_text() == "li"


def from_another_folder():
    os.chdir("out")
    Path("best.pt").write_text("relative")
    Path("../log.txt").write_text("relative")
    os.chdir("deep")
    Path("made.txt").write_text("relative")


def by_a_folder_s_descriptor():
    folder = os.open("out", os.O_RDONLY)
    os.remove("best.pt", dir_fd=folder)
    os.mkdir("made", dir_fd=folder)
    os.close(folder)


def from_a_forked_process():
    assert in_child(overwrite) == 0
    append()
    assert in_child(append_again) == 0


def append_again():
    with open("log.txt", "a") as file:
        file.write("line 3\n")


def names_of_all_kinds():
    for name in ("a b'\"", "\u00fc" * 80, "[bold]x", "new\nline", os.fsdecode(b"\xff\xfe"), "\u2028", "x" * 255):
        Path(name).write_text("hostile")
        os.remove(name)
        Path(name).write_text("hostile")


CASES = [
    overwrite,
    append,
    write_in_the_middle,
    replace_by_a_temporary,
    rotate_and_write_in_place,
    write_through_a_link,
    move_a_link,
    write_another_name_of_a_file,
    remove_and_write_again,
    new_folders,
    remove_a_tree_and_make_it_anew,
    remove_a_tree_twice,
    remove_an_empty_folder,
    rename_a_folder,
    back_up_a_folder_and_start_anew,
    finish_a_folder_under_another_name,
    swap_two_folders,
    rename_onto_an_empty_folder,
    fail_to_rename,
    move_out_of_the_project,
    change_mode_and_times,
    truncate,
    from_another_folder,
    by_a_folder_s_descriptor,
    from_a_forked_process,
    names_of_all_kinds,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.slow
def test_the_script_sees_what_it_wrote_and_the_folder_is_afterwards_as_before(project, case):
    before = picture(project)
    assert protected(project, case) == 0
    restore_files(recording(project))
    assert picture(project) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.slow
def test_a_second_execution_in_the_same_recording_is_undone_as_well(project, case):
    before = picture(project)
    for _ in range(2):
        shutil.rmtree(project.parent / "elsewhere", ignore_errors=True)
        assert protected(project, case) == 0
        restore_files(recording(project))
    assert picture(project) == before


def test_what_the_script_wrote_lies_in_the_recording(project):
    protected(project, new_folders)
    restore_files(recording(project))
    assert (recording(project) / "files" / "written" / "runs" / "exp1" / "config.json").read_text() == "{}"


def test_large_new_files_are_not_kept(project):
    def act():
        with open("large.bin", "wb") as file:
            file.truncate(17 * 1024 * 1024)

    assert protected(project, act) == 0
    restore_files(recording(project))
    assert not (project / "large.bin").exists()
    assert not (recording(project) / "files" / "written" / "large.bin").exists()


def test_a_file_with_two_names_is_one_file_again(project):
    os.link(project / "checkpoint.pt", project / "same.pt")
    before = picture(project)
    assert protected(project, append_to_checkpoint) == 0
    assert (project / "same.pt").read_text() == "old weights"
    restore_files(recording(project))
    assert picture(project) == before
    assert (project / "same.pt").samefile(project / "checkpoint.pt")


def append_to_checkpoint():
    with open("checkpoint.pt", "a") as file:
        file.write(" and more")


def test_a_file_that_may_not_be_written_is_not_written(project):
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    (project / "checkpoint.pt").chmod(0o444)

    def act():
        with pytest.raises(PermissionError):
            Path("checkpoint.pt").write_text("")

    assert protected(project, act) == 0


def test_a_thread_that_writes_while_another_copies_is_protected_too(project):
    before = picture(project)
    release = threading.Event()

    def act():
        copy = shutil.copy2

        def slow_copy(*args, **kwargs):
            release.wait(10)
            return copy(*args, **kwargs)

        shutil.copy2 = slow_copy
        thread = threading.Thread(target=append)
        thread.start()
        time.sleep(0.05)
        Path("results.csv").write_text("overwritten")
        release.set()
        thread.join()

    assert protected(project, act) == 0
    restore_files(recording(project))
    assert picture(project) == before


@pytest.mark.parametrize("name", ["exp.db", "file:exp.db", "file:exp.db?cache=shared"])
def test_a_database_and_its_journals_are_put_back(project, name):
    with sqlite3.connect(project / "exp.db") as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (1)")
    database.close()
    before = picture(project)

    def act():
        database = sqlite3.connect(name, uri=True)
        database.execute("pragma journal_mode=wal")
        database.execute("insert into t values (2)")
        database.commit()
        assert database.execute("select count(*) from t").fetchone() == (2,)
        database.execute("insert into t values (3)")
        os.kill(os.getpid(), signal.SIGKILL)

    assert protected(project, act) == -signal.SIGKILL
    restore_files(recording(project))
    assert picture(project) == before


def test_a_database_in_memory_or_read_only_is_left_alone(project):
    sqlite3.connect(project / "exp.db").close()

    def act():
        sqlite3.connect(":memory:").close()
        sqlite3.connect("file:exp.db?mode=ro", uri=True).close()
        sqlite3.connect("file:mem?mode=memory", uri=True).close()

    assert protected(project, act) == 0
    assert not (journal(project) / "journal").exists()


def test_caches_temporary_files_and_devices_are_left_alone(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("temporary")

    def act():
        (elsewhere / "x").write_text("x")
        Path("__pycache__").mkdir()
        Path("__pycache__/m.pyc").write_text("x")
        Path(os.devnull).write_text("x")
        (recording(project) / "own").write_text("x")

    assert protected(project, act) == 0
    assert not (journal(project) / "journal").exists()
    assert (elsewhere / "x").exists()


def test_when_nothing_can_be_noted_the_file_is_not_touched(project):
    """A full disk: the script's own write fails, its file stays."""
    before = picture(project)

    def act():
        os.mkdir(journal(project) / "journal")  # opening it to append fails from now on
        for _ in range(2):
            with pytest.raises(OSError, match="directory"):
                Path("checkpoint.pt").write_text("")
            with pytest.raises(OSError, match="directory"):
                os.remove("log.txt")

    assert protected(project, act) == 0
    assert picture(project) == before


def test_when_a_file_cannot_be_kept_it_is_not_touched(project):
    before = picture(project)

    def act():
        def no_room(*args, **kwargs):
            raise OSError(28, "No space left on device")

        shutil.copy2 = os.rename = os.link = no_room
        for _ in range(2):
            for mode in "aw":
                with pytest.raises(OSError, match="No space"):
                    Path("checkpoint.pt").open(mode).close()

    assert protected(project, act) == 0
    restore_files(recording(project))
    assert picture(project) == before


# --------------------------------------------------------------------------------------- all that scripts might do


class Chaos:
    """Random file operations on a few names, so that they meet each other in every order."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self):
        acts = [self.write, self.write, self.append, self.remove, self.rename, self.rename, self.mkdir, self.rmtree]
        acts += [self.rmdir, self.chmod, self.link, self.symlink, self.forked_append]
        for _ in range(self.random.randint(1, 25)):
            with contextlib.suppress(OSError):  # scripts meet missing files, too
                self.random.choice(acts)(self.name(), self.name())

    def name(self):
        names = ["checkpoint.pt", "log.txt", "out", "out/best.pt", "out/deep", "out/deep/er.txt", "empty", "data"]
        names += ["data/raw.bin", "latest.pt", "new", "new/file", "out/file", "empty/file", "data/deep"]
        return self.random.choice(names)

    def write(self, one, other):
        Path(one).write_text(f"written {self.random.random()}")

    def append(self, one, other):
        with open(one, "a") as file:
            file.write("more")

    def forked_append(self, one, other):
        in_child(lambda: os.path.isdir(one) or self.append(one, other))

    def remove(self, one, other):
        os.remove(one)

    def rename(self, one, other):
        os.replace(one, other)

    def mkdir(self, one, other):
        os.makedirs(one)

    def rmtree(self, one, other):
        shutil.rmtree(one)

    def rmdir(self, one, other):
        os.rmdir(one)

    def chmod(self, one, other):
        if os.path.isfile(one):
            os.chmod(one, 0o600)

    def link(self, one, other):
        os.link(one, other)

    def symlink(self, one, other):
        os.symlink(os.path.abspath(one), other)


def kill_after(count):
    """Kill this process at its `count`-th file operation from now, after the keeper has seen it."""
    left = [count]

    def hook(event, args):
        if event == "open" or event.startswith(("os.", "shutil.")):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


SEEDS = range(40)


@pytest.mark.slow
def test_any_order_of_operations_is_undone(tmp_path):
    for seed in SEEDS:
        project = tmp_path / str(seed)
        make_project(project)
        before = picture(project)
        protected(project, Chaos(seed))
        restore_files(recording(project))
        assert picture(project) == before, f"seed {seed}"


@pytest.mark.slow
def test_a_kill_at_any_operation_is_undone(tmp_path):
    for seed in SEEDS:
        project = tmp_path / str(seed)
        make_project(project)
        before = picture(project)

        def act(seed=seed):
            kill_after(random.Random(seed).randint(1, 60))
            Chaos(seed)()

        protected(project, act)
        restore_files(recording(project))
        assert picture(project) == before, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.full
def test_a_restoration_that_is_killed_is_completed_by_the_next(tmp_path):
    for seed in SEEDS:
        project = tmp_path / str(seed)
        make_project(project)
        before = picture(project)
        protected(project, Chaos(seed))
        for attempt in range(3):

            def act(number=attempt, seed=seed, project=project):
                kill_after(random.Random(seed + number).randint(1, 25))
                restore_files(recording(project))

            in_child(act)
        restore_files(recording(project))
        assert picture(project) == before, f"seed {seed}"
