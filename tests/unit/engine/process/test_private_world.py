"""A private copy of the file system: what is written in it never reaches the user's files, and is seen in it."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest
from tests.e2e.support import picture, why_no_private_world

from flatout.engine.process import private_world as world_module
from flatout.engine.process.private_folders import make_rooms, remove_left_over_rooms
from flatout.engine.process.private_world import HARMFUL_FILE, Refused, World
from flatout.watch.forked_copy import go_on_alone

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="overlays are Linux's")]


@pytest.fixture(params=["own namespace of mounts", "user namespace"])
def allowed(request, monkeypatch):
    """As root by mounts alone, and as everybody else by a user namespace; root can play everybody else."""
    if why_no_private_world():
        pytest.skip(why_no_private_world())
    if request.param == "user namespace":
        monkeypatch.setattr(world_module, "may_mount", lambda: False)
    elif os.geteuid() != 0:
        pytest.skip("not root")
    return request.param


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project beside another folder, with a home of its own."""
    journal, tmp_path = tmp_path / "journal", tmp_path / "user"
    journal.mkdir()
    for name in ("project/a.txt", "project/sub/b.txt", "other/c.txt", "home/d.txt", "home/.cache/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "project" / ".flatout" / "session").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "project"


def journal(project):
    return project.parents[1] / "journal"


def prepared(project):
    return World(str(project), str(project / ".flatout" / "session"), str(journal(project)))


def entering(world):
    """Return what a child does to enter; one of a process in which torch keeps threads leaves them first."""

    def enter():
        if len(os.listdir("/proc/self/task")) > 1:
            go_on_alone()
        world.enter()

    return enter


def in_world(project, words, **kwargs):
    """Run a command in a private copy; return what it printed."""
    world = prepared(project)
    command = ["sh", "-ec", words] if isinstance(words, str) else words
    try:
        done = subprocess.run(
            command, preexec_fn=entering(world), capture_output=True, text=True, check=False, **kwargs
        )
    finally:
        world.keep_caches()
        world.remove()
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_shell_does_to_files_it_sees_and_the_user_does_not(project, allowed):
    before = picture(project.parent)
    words = """
        sed -i s/mine/new/ a.txt; rm -r sub; mkdir sub; echo x > sub/fresh; mv sub moved; chmod 600 a.txt; mkfifo pipe
        echo x >> ../other/c.txt; rm ../home/d.txt; ln -s a.txt link; cat a.txt moved/fresh; ls
    """
    assert in_world(project, words).split() == ["newx", "a.txt", "link", "moved", "pipe"]
    assert picture(project.parent) == before


def test_a_folder_of_the_user_s_is_removed_and_made_anew_empty(project, allowed):
    assert in_world(project, "rm -r sub; mkdir sub; ls -A sub; rmdir sub; ls") == "a.txt\n"
    assert (project / "sub" / "b.txt").read_text() == "mine"


def test_flatout_s_own_folders_are_shared(project, allowed):
    in_world(project, "echo x > .flatout/session/part; echo y > ../../journal/note; echo z > .flatout/other")
    assert (project / ".flatout" / "session" / "part").read_text() == "x\n"
    assert (journal(project) / "note").read_text() == "y\n"
    assert not (project / ".flatout" / "other").exists()


def test_caches_stay_filled_and_one_that_was_missing_is_kept(project, allowed):
    in_world(project, "echo x > $HOME/.cache/more; mkdir $HOME/.triton; echo y > $HOME/.triton/kernel")
    assert (project.parent / "home" / ".cache" / "more").read_text() == "x\n"
    assert (project.parent / "home" / ".triton" / "kernel").read_text() == "y\n"


def test_who_where_and_with_which_rights_the_script_is_stays_as_it_is(project, allowed):
    project.chmod(0o750)
    words = "id -u; id -g; pwd; stat -c '%u %g %a %Y' . a.txt"
    plain = subprocess.run(["sh", "-ec", words], cwd=project, capture_output=True, text=True, check=True).stdout
    assert in_world(project, words, cwd=project) == plain


def test_named_pipes_lead_to_who_reads_them_outside(project, allowed):
    os.mkfifo(project / "pipe")
    heard = []
    reader = threading.Thread(target=lambda: heard.append((project / "pipe").read_text()))
    reader.start()
    in_world(project, "echo said > pipe")
    reader.join(10)
    assert heard == ["said\n"]


def test_memory_maps_written_in_it_do_not_reach_the_file(project, allowed):
    act = "import mmap; f = open('a.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:2] = b'XX'; m.flush()"
    in_world(project, [sys.executable, "-c", act])
    assert (project / "a.txt").read_text() == "mine"


def test_devices_and_shared_memory_are_the_system_s(project, allowed):
    in_world(project, f"echo x > /dev/null; echo y > /dev/shm/flatout-{os.getpid()}; test -c /dev/urandom")
    found = f"/dev/shm/flatout-{os.getpid()}"
    assert os.path.exists(found)
    os.unlink(found)


def test_nothing_is_left_of_it(project, allowed):
    rooms = []

    def kept(found):
        rooms.extend(make_rooms(found))
        return rooms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world_module, "make_rooms", kept)
        in_world(project, "mkdir -p locked/in; chmod 0 locked; rm -r sub; echo x > b.txt")
    assert rooms
    assert not any(os.path.exists(room.path) for room in rooms)


def test_a_room_whose_guard_was_killed_is_removed_and_one_in_use_is_not(monkeypatch):
    from flatout.engine.process.mounts import mounts

    monkeypatch.setattr("flatout.engine.process.private_folders._YOUNG_S", -1.0)
    used, left = make_rooms(mounts()), make_rooms(mounts())
    if not used or not left:
        pytest.skip("no disk here is fit for a room")
    for room in left:
        os.makedirs(os.path.join(room.path, "1", "upper"))
        os.close(room.lock)
    assert remove_left_over_rooms() >= len(left)
    assert all(os.path.isdir(room.path) for room in used)
    assert not any(os.path.exists(room.path) for room in left)
    for room in used:
        room.remove()


def test_removing_a_room_changes_nothing_around_it(tmp_path):
    from flatout.engine.process.private_folders import Room

    room = tmp_path / "around" / "room"
    for folder in ("1/work/work", "2/upper/locked"):
        (room / folder).mkdir(parents=True)
        (room / folder).chmod(0)
    (room / "2" / "upper" / "link").symlink_to(tmp_path / "around")
    (tmp_path / "around").chmod(0o751)
    Room(str(room), os.open(os.devnull, os.O_RDONLY)).remove()
    Room(str(room), os.open(os.devnull, os.O_RDONLY)).remove()
    assert not room.exists()
    assert stat.S_IMODE((tmp_path / "around").stat().st_mode) == 0o751


def test_it_is_refused_where_it_is_switched_off_or_did_harm_before(project, monkeypatch):
    (project / ".flatout" / "session" / "files").mkdir()
    (project / ".flatout" / "session" / "files" / HARMFUL_FILE).touch()
    with pytest.raises(Refused, match="failed in a private copy"):
        prepared(project)
    monkeypatch.setenv("FLATOUT_WORLD", "off")
    with pytest.raises(Refused, match="switched off"):
        prepared(project)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_user_whose_project_has_files_of_another_group_is_told(project, monkeypatch):
    monkeypatch.setattr(world_module, "may_mount", lambda: False)
    os.chown(project / "a.txt", 0, 12345)
    with pytest.raises(Refused, match=r"a\.txt belongs to another user or group"):
        prepared(project)


def test_the_reason_why_the_kernel_refuses_is_in_the_report(project, monkeypatch):
    def refuse(*, users):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), "unshare")

    monkeypatch.setattr(world_module, "leave_namespaces", refuse)
    world = prepared(project)
    with pytest.raises(subprocess.SubprocessError):
        subprocess.run(["true"], preexec_fn=world.enter, check=False)
    assert world.report() == {"error": "unshare: Operation not permitted"}
    world.remove()


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="only root can mount")
def test_another_file_system_in_the_project_is_private_too(project, allowed):
    if allowed == "user namespace":
        pytest.skip("there, a file system within a folder keeps the folder from being covered as a whole")
    disk = project / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "far.txt").write_text("mine")
        assert in_world(project, "cat disk/far.txt; echo x > disk/far.txt; rm a.txt; echo y > disk/new") == "mine"
        assert (disk / "far.txt").read_text() == "mine"
        assert os.listdir(disk) == ["far.txt"]
        assert stat.S_ISREG((project / "a.txt").stat().st_mode)
    finally:
        subprocess.run(["umount", disk], check=True)
