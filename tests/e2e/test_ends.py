"""However a run ends, nothing is left running, what was measured is kept, and the user is told."""

import random
import re
import shutil
import signal
import subprocess

import pytest

from tests.e2e.support import Flatout, picture, training, wait_until


def said(ended):
    return " ".join(ended.err.split())


def kept(flatout):
    """Assert that the recording can be shown again."""
    ended = flatout("report", ".flatout")
    assert ended.code == 0, ended.err
    assert "Each step takes" in ended.out


# ------------------------------------------------------------------------------------------------------------ kill -9


@pytest.fixture
def own_checkpoint(flatout):
    """A script that overwrites a checkpoint of the user's again and again; return the folder as it was."""
    flatout.write(training(each_step="torch.save(model.state_dict(), 'checkpoint.pt')", workers=1))
    flatout.write("the user's own", "checkpoint.pt")
    return picture(flatout.folder)


@pytest.mark.full
def test_what_a_killed_flatout_measured_can_be_shown(flatout):
    flatout.write(training())
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    process.kill()
    assert flatout.wait(process).code == -signal.SIGKILL
    assert flatout.left_behind() == []
    kept(flatout)


@pytest.mark.few(1)
def test_a_killed_flatout_leaves_no_process_and_the_user_s_files(flatout, world, own_checkpoint):
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    assert (picture(flatout.folder) == own_checkpoint) == (world == "private"), "in a private copy it never changes"
    process.kill()
    process.wait()
    assert flatout.left_behind() == []
    assert picture(flatout.folder) == own_checkpoint


@pytest.mark.full
def test_a_killed_guard_costs_the_rest_of_its_run_and_no_more(flatout, own_checkpoint):
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    flatout.guard().kill()
    ended = flatout.wait(process)
    assert flatout.left_behind() == []
    assert picture(flatout.folder) == own_checkpoint
    assert ended.code == 0, ended.err
    assert "Each step takes" in ended.out
    kept(flatout)


@pytest.mark.full
def test_a_guard_killed_with_a_process_that_left_the_script_leaves_nothing(flatout):
    flatout.write(training(before="if __name__ == '__main__' and not os.fork(): os.setsid(); time.sleep(600)"))
    process = flatout.start("diagnose", "--steps", "20", "train.py")
    flatout.wait_for_steps()
    flatout.guard().kill()
    flatout.wait(process)
    assert flatout.left_behind() == []


@pytest.mark.full
def test_flatout_and_guard_killed_together_are_tidied_up_by_the_next(flatout, world, own_checkpoint):
    before = "if __name__ == '__main__' and not os.fork(): os.setsid(); time.sleep(600)"
    flatout.write(training(before=before, each_step="torch.save(model.state_dict(), 'checkpoint.pt')"))
    own_checkpoint = picture(flatout.folder)
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    guard = flatout.guard()
    process.send_signal(signal.SIGSTOP)  # or it would tidy up between the two
    guard.kill()
    process.kill()
    process.wait()
    assert wait_until(lambda: len(flatout.processes()) == 1), "the script itself dies with its guard"
    assert (picture(flatout.folder) == own_checkpoint) == (world == "private"), "in a private copy it never changes"
    (flatout.folder / "next.py").write_text("print('no torch')")
    own_checkpoint = {**own_checkpoint, "next.py": picture(flatout.folder)["next.py"]}
    assert flatout.diagnose("next.py").code == 3
    assert picture(flatout.folder) == own_checkpoint
    assert flatout.left_behind() == []


def test_a_flatout_started_while_the_guard_of_a_killed_one_still_works_waits_for_it(flatout, own_checkpoint):
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    process.kill()
    process.wait()
    assert flatout("diagnose", "-m", "no_such_module").code == 1
    assert picture(flatout.folder) == own_checkpoint


@pytest.mark.full
def test_a_killed_script_is_told_with_its_signal_and_what_was_measured(flatout, own_checkpoint):
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()
    flatout.script().kill()
    ended = flatout.wait(process)
    assert ended.code == 1
    assert "train.py was killed by signal 9 after" in said(ended)
    assert "memory" in said(ended)
    assert "Each step takes" in ended.out
    assert picture(flatout.folder) == own_checkpoint
    assert flatout.left_behind() == []
    kept(flatout)


@pytest.mark.full
def test_a_killed_worker_is_the_script_s_failure_and_what_was_measured_is_kept(flatout):
    long_epoch = (
        "Data.__len__ = lambda self: 1_000_000\nData.__getitem__ = lambda self, i: (self.x[i % 64], self.y[i % 64])"
    )
    flatout.write(training(before=long_epoch, workers=1))
    process = flatout.start("diagnose", "train.py")
    flatout.wait_for_steps()

    def kill_a_worker():
        workers = [child for child in flatout.script().children() if child.name().startswith(("python", "pt_"))]
        if workers:
            workers[-1].kill()
        return bool(workers)

    assert wait_until(kill_a_worker)
    ended = flatout.wait(process)
    assert ended.code == 1
    # torch sees it by SIGCHLD, by its broken pipe or one that ends in the middle of a word, or when it asks whether the
    # worker lives
    seen = ("is killed by signal: Killed", "Connection", "EOFError", "exited unexpectedly")
    assert any(words in said(ended) for words in seen), said(ended)
    assert "Each step takes" in ended.out
    kept(flatout)


# -------------------------------------------------------------------------------------------------------------- Ctrl-C


@pytest.fixture
def swift(flatout):
    flatout.write(training())
    return flatout


def test_ctrl_c_while_the_script_starts(swift):
    process = swift.start("diagnose", "train.py")
    assert wait_until(lambda: list(swift.folder.glob(".flatout/*/*/guard.lock")))
    process.send_signal(signal.SIGINT)
    ended = swift.wait(process)
    assert ended.code == 130
    assert "Interrupted. Nothing was measured yet." in said(ended)
    assert swift.left_behind() == []


@pytest.mark.full
def test_ctrl_c_in_the_timed_run(swift):
    process = swift.start("diagnose", "train.py")
    swift.wait_for_steps()
    process.send_signal(signal.SIGINT)
    ended = swift.wait(process)
    assert ended.code == 130
    assert "Interrupted. What was measured is kept. It is in" in said(ended)
    assert str(ended.recording) in said(ended)
    assert "Each step takes" in ended.out
    assert swift.left_behind() == []
    kept(swift)


def test_ctrl_c_in_the_deep_run(swift):
    process = swift.start("diagnose", "--steps", "20", "train.py")
    assert wait_until(lambda: list(swift.folder.glob(".flatout/*/*/order-deep.json")), 60)
    process.send_signal(signal.SIGINT)
    ended = swift.wait(process)
    assert ended.code == 130
    assert "Interrupted. What was measured is kept. It is in" in said(ended)
    assert str(ended.recording) in said(ended)
    assert "Each step takes" in ended.out
    assert len(ended.run.steps) >= 20
    assert swift.left_behind() == []
    kept(swift)


@pytest.mark.full
def test_ctrl_c_pressed_twice(swift):
    process = swift.start("diagnose", "train.py")
    swift.wait_for_steps()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert swift.wait(process).code == 130
    assert swift.left_behind() == []


@pytest.mark.parametrize("moment", [round(random.Random(seed).uniform(0.02, 3.0), 2) for seed in range(4)])
@pytest.mark.few(1)
def test_ctrl_c_at_any_moment(flatout, moment):
    flatout.write(training(each_step="open('log.txt', 'a').write('x')"))
    flatout.write("mine", "log.txt")
    before = picture(flatout.folder)
    process = flatout.start("diagnose", "--steps", "20", "train.py")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(moment)
    process.send_signal(signal.SIGINT)
    ended = flatout.wait(process)
    assert ended.code in (130, -signal.SIGINT)  # the latter before Python has come to our first line
    assert ended.code == -signal.SIGINT or "Traceback" not in ended.err
    assert flatout.left_behind() == []
    assert picture(flatout.folder) == before


@pytest.mark.full
def test_a_terminated_flatout_leaves_nothing(swift):
    process = swift.start("diagnose", "train.py")
    swift.wait_for_steps()
    process.terminate()
    assert swift.wait(process).code != 0
    assert swift.left_behind() == []


# ------------------------------------------------------------------------------------------ scripts with their own way


@pytest.mark.full
def test_a_script_that_swallows_everything_is_ended_all_the_same(flatout):
    swallow = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    try:
        step(torch.randn(8, 8), torch.randn(8, 1))
    except BaseException:
        pass
"""
    flatout.write(training(before="import signal").replace("    main()\n", swallow.replace("\n", "\n    ")))
    ended = flatout.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert "Each step takes" in ended.out
    assert len(ended.run.steps) >= 20
    assert flatout.left_behind() == []


@pytest.mark.full
def test_processes_that_a_script_forks_end_with_it(flatout):
    fork = """
import multiprocessing
if __name__ == '__main__':
    if not os.fork():
        os.setsid()
        if not os.fork():
            while True:
                time.sleep(1)
        while True:
            time.sleep(1)
    multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,)).start()
"""
    flatout.write(training(before=fork))
    ended = flatout.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert len(ended.run.steps) >= 20
    assert flatout.left_behind() == []


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.full
def test_a_script_that_ends_at_once_is_measured_up_to_there(flatout, code):
    flatout.write(training(each_step=f"if done == 60: os._exit({code})"))
    ended = flatout.diagnose("train.py", steps=200)
    assert ended.code == (1 if code else 0), ended.err
    assert "Each step takes" in ended.out
    assert len(ended.run.steps) in (59, 60)
    if code:
        assert "train.py failed with exit code 3 after" in said(ended)


@pytest.mark.full
def test_a_script_that_prints_100_mb_is_measured_and_its_log_stays_small(flatout):
    flatout.write(training(each_step="sys.stdout.write(f'{done:07}{chr(120) * 99_992}{chr(10)}' * 50)"))
    ended = flatout.diagnose("train.py")
    assert ended.code == 0, ended.err
    log = ended.recording / "output-timed.log"
    assert log.stat().st_size < 13_000_000
    text = log.read_text()
    assert text.startswith("0000001")
    assert "bytes of output left out" in text
    assert "0000021" in text


# ----------------------------------------------------------------------------------------------------------- full disk


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB; only root can make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if not made or made.returncode:
        pytest.skip("a small disk can only be made by root, with mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def flatout_on_small_disk(small_disk):
    command = Flatout(small_disk)
    command.folder = small_disk / "project"
    command.folder.mkdir()
    command.environment["TMPDIR"] = str(small_disk.parent)
    streams = small_disk.parent / "project-streams"
    streams.mkdir()
    (small_disk / "project-streams").symlink_to(streams)
    yield command
    assert command.left_behind() == []


def fill(disk, leave=0):
    with (disk / "filler").open("wb", buffering=0) as file:
        room = shutil.disk_usage(disk).free - leave
        while room > 0:
            try:
                room -= file.write(b"x" * min(room, 4096))
            except OSError:
                break


def test_a_disk_that_is_full_from_the_start_is_told_and_nothing_is_run(flatout_on_small_disk):
    flatout = flatout_on_small_disk
    flatout.write(training(before="open('ran', 'w')"))
    fill(flatout.folder.parent)
    ended = flatout.diagnose("train.py")
    assert ended.code == 2, ended.err
    assert "cannot be written (No space left on device)" in said(ended)
    assert not (flatout.folder / "ran").exists()


@pytest.mark.full
def test_a_disk_that_fills_while_the_script_runs_keeps_the_user_s_files(flatout_on_small_disk):
    flatout = flatout_on_small_disk
    script = training(each_step="print('x' * 20_000, flush=True)\ntorch.save(model.state_dict(), 'checkpoint.pt')")
    flatout.write(script)
    flatout.write("mine" * 1000, "checkpoint.pt")
    flatout.write("mine", "log.txt")
    before = picture(flatout.folder)
    ended = flatout.diagnose("train.py", steps=100)
    assert ended.code in (0, 1, 2), ended.err
    assert "flatout itself failed" not in ended.err
    assert ended.code == 0 or "No space left" in said(ended) or "is full" in said(ended)
    assert picture(flatout.folder) == before


@pytest.mark.full
def test_a_disk_that_fills_up_costs_the_recording_and_not_the_report(flatout_on_small_disk):
    """The log of the script takes all room: what was measured before is shown."""
    flatout = flatout_on_small_disk
    flatout.write(training(each_step="if done > 100: print('x' * 20_000, flush=True)"))
    ended = flatout.diagnose("train.py", steps=400)
    assert ended.code == 2, ended.err
    assert re.search(r"The disk of .* is full: \d+ bytes are left.", said(ended))
    assert "--out" in said(ended)
    assert "Each step takes" in ended.out
