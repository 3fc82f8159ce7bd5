"""What a measured script writes never reaches the user's files, or is named; what came from others is not followed."""

import fcntl
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest

from flatout.engine.process.journal_claims import LOCK_FILE, write_claim
from tests.e2e.support import picture, training, wait_until, why_no_private_world

NOBODY = 65534
CHILDREN = """
import ctypes, subprocess
if __name__ == "__main__":
    subprocess.run("sed -i s/mine/new/ a.txt; rm b.txt; mkdir made; echo x >> ../outside.txt", shell=True, check=True)
    ctypes.CDLL(None).truncate(b"c.txt", ctypes.c_long(1))
    assert open("a.txt").read() == "new" and os.listdir("made") == []
"""


@pytest.fixture
def project(flatout):
    for name in ("a.txt", "b.txt", "c.txt", "../outside.txt"):
        flatout.write("mine", name)
    return flatout


def text(ended):
    return " ".join((ended.out + ended.err).split())


@pytest.mark.skipif(bool(why_no_private_world()), reason=f"no private copy here: {why_no_private_world()}")
def test_what_children_and_c_code_write_never_reaches_the_user(project):
    project.write(training(before=CHILDREN))
    before = picture(project.folder.parent)
    ended = project.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert {**before, **picture(project.folder.parent)}.items() >= before.items()
    assert (project.folder / "a.txt").read_text() == "mine"
    assert not (project.folder / "made").exists()
    assert "private copy" not in text(ended)


@pytest.mark.full
def test_without_a_private_copy_what_children_and_c_code_changed_is_named(project):
    project.write(training(before=CHILDREN))
    ended = project.diagnose("train.py", FLATOUT_WORLD="off")
    assert ended.code == 0, ended.err
    assert "no private copy of the file system here (it is switched off)" in text(ended)
    joined = (ended.out + ended.err).replace("\n", "").replace(" ", "")
    for name, how in (("a.txt", "changed"), ("b.txt", "removed"), ("c.txt", "changed"), ("made", "new")):
        assert f"{project.folder / name}({how})".replace(" ", "") in joined
    everything = (ended.recording / "files" / "past-the-guard.txt").read_text()
    assert f"{project.folder.parent / 'outside.txt'} (changed)\n" in everything


def test_they_are_named_when_the_script_fails_before_its_first_step(project):
    project.write("import subprocess, torch\nsubprocess.run(['rm', 'b.txt'])\nraise RuntimeError('early')\n")
    ended = project.diagnose("train.py", FLATOUT_WORLD="off")
    assert ended.code == 1
    assert f"{project.folder / 'b.txt'} (removed)" in text(ended)


@pytest.mark.full
def test_a_foreign_recording_s_journal_overwrites_nothing_and_is_refused_with_one_line(project):
    project.write(training())
    files = project.folder / ".flatout" / "train.py" / "20260101-000000" / "files"
    (files / "kept").mkdir(parents=True)
    (files / "kept" / "1").write_text("evil")
    place, other = str(project.folder.parent / "outside.txt"), str(files / "kept" / "1")
    (files / "journal").write_text(json.dumps({"act": "kept", "place": place, "other": other, "number": 0}) + "\n")
    ended = project.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert Path(place).read_text() == "mine"
    assert text(ended).count("is not a journal of yours") == 1


@pytest.mark.full
def test_a_script_that_fails_for_its_private_copy_is_started_once_more_without(project):
    refuse = """
if "overlay" in open("/proc/self/mountinfo").read().partition(" - overlay overlay ")[1]:
    raise OSError(18, "Invalid cross-device link")
"""
    project.write(training(before=refuse))
    ended = project.diagnose("train.py")
    assert ended.code == 0, ended.err
    if not why_no_private_world():
        assert "no private copy of the file system here (the script failed in a private copy)" in text(ended)


@pytest.mark.full
def test_who_holds_the_guard_s_lock_is_said_and_waited_for(project, monkeypatch):
    project.write(training())
    monkeypatch.setenv("XDG_STATE_HOME", str(project.folder.parent / "state"))
    folder = project.folder / ".flatout" / "train.py" / "20260101-000000"
    folder.mkdir(parents=True)
    journal = write_claim(folder, str(project.folder))
    with (journal / LOCK_FILE).open("w+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(lock.fileno(), b"4711", 0)
        process = project.start("diagnose", "--steps", "20", "train.py")
        said = "waiting for process 4711, which is restoring files"
        assert wait_until(lambda: said in process.err_path.read_text())
    assert project.wait(process).code == 0


@pytest.mark.skipif(bool(why_no_private_world()), reason=f"no private copy here: {why_no_private_world()}")
@pytest.mark.full
def test_flatout_and_guard_killed_leave_no_change_and_no_room_after_the_next_start(project, monkeypatch):
    project.write(training(before=CHILDREN))
    rooms = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else Path(tempfile.gettempdir())
    before, earlier = picture(project.folder), set(rooms.glob("flatout-world-*"))
    process = project.start("diagnose", "train.py")
    project.wait_for_steps()
    project.guard().send_signal(signal.SIGSTOP)
    process.kill()
    project.guard().kill()
    process.wait()
    assert project.left_behind() == []
    assert picture(project.folder) == before
    left = set(rooms.glob("flatout-world-*")) - earlier
    for room in left:
        os.utime(room, (1, 1))
    assert project.diagnose("train.py").code == 0
    assert not any(room.exists() for room in left)


@pytest.fixture
def as_nobody():
    """A folder of another user's, and a Python that he can start."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = next((path for path in (f"/usr/bin/{version}", f"/usr/local/bin/{version}") if os.path.exists(path)), "")
    source = Path(__file__).resolve().parents[2] / "src"
    readable = subprocess.run(
        ["setpriv", "--reuid", str(NOBODY), "--clear-groups", "test", "-r", str(source)], check=False
    )
    if not python or readable.returncode:
        pytest.skip("no Python and source that another user may read")
    top = Path(tempfile.mkdtemp(dir="/var/tmp"))
    (top / "project").mkdir()
    subprocess.run([python, "-m", "venv", "--without-pip", str(top / "venv")], check=True)
    packages = [str(source), sysconfig.get_paths()["purelib"], *site.getsitepackages()]
    (top / "venv" / "lib" / version / "site-packages" / "all.pth").write_text("\n".join(packages))
    yield top
    shutil.rmtree(top)


@pytest.mark.full
def test_a_user_who_is_not_root_has_the_private_copy_too(as_nobody):
    act = """
import shutil, subprocess
if __name__ == "__main__":
    subprocess.run("sed -i s/mine/new/ a.txt; rm -r sub; mkdir sub; echo x >> ../outside.txt", shell=True, check=True)
    os.rename("folder", "renamed")
    assert os.listdir("renamed") == ["b.txt"] and os.listdir("sub") == []
"""
    for name in ("project/a.txt", "project/sub/c.txt", "project/folder/b.txt", "outside.txt"):
        (as_nobody / name).parent.mkdir(exist_ok=True)
        (as_nobody / name).write_text("mine")
    (as_nobody / "project" / "train.py").write_text(training(before=act))
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(as_nobody)], check=True)
    before = picture(as_nobody / "project")
    command = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "env", "-i"]
    command += ["PATH=/usr/bin:/bin", f"HOME={as_nobody}", str(as_nobody / "venv" / "bin" / "python")]
    start = time.monotonic()
    done = subprocess.run([*command, "-m", "flatout", "diagnose", "--steps", "20", "train.py"], check=False,
                          cwd=as_nobody / "project", capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert picture(as_nobody / "project") == before, time.monotonic() - start
    if "private copy" in " ".join(done.stdout.split()):
        pytest.skip("this system gives user namespaces to root alone")
    assert (as_nobody / "outside.txt").read_text() == "mine"
