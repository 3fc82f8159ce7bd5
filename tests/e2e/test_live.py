"""`flatout run --live` on a real terminal: the panel is seen, the script is what it was, nothing is left behind."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_live import standing
from tests.e2e.support import MARK, training
from tests.e2e.test_run import CHECKPOINT, DISTRIBUTED, plain, project

__all__ = ["project"]

# A terminal for one command: what it shows, how the command ends, whether the terminal's modes are what they were.
TERMINAL = r"""
import fcntl, json, os, select, signal, struct, sys, termios
act, waiting = sys.argv[1], bool(sys.argv[1])
ours, theirs = os.openpty()
fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
before, seen, status = termios.tcgetattr(theirs), b"", None
pid = os.fork()
if not pid:
    os.close(ours)
    os.login_tty(theirs)
    os.execv(sys.executable, [sys.executable, "-m", "flatout", "run", *sys.argv[2:]])
while True:
    if select.select([ours], [], [], 0.1)[0]:
        seen += os.read(ours, 65536)
    elif status is not None:
        break
    if waiting and b"Each step takes" in seen:
        waiting = False
        os.kill(pid, signal.SIGKILL) if act == "kill" else os.write(ours, b"\x03")
    if status is None:
        done, ended = os.waitpid(pid, os.WNOHANG)
        status = ended if done else None
same = termios.tcgetattr(theirs) == before
print(json.dumps({"code": os.waitstatus_to_exitcode(status), "seen": seen.decode(), "same": same}))
"""


@dataclass
class Shown:
    """How a command on a terminal ended, and all that the terminal got."""

    code: int
    seen: str

    @property
    def left(self):
        """The lines that stand on the terminal in the end."""
        return standing(self.seen)

    @property
    def frames(self):
        """Every panel that was drawn, as plain text."""
        plainly = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen).replace("\r", "")
        return plainly.split("── ")[1:]


@pytest.fixture
def short_folder():
    """A folder with a short name: a worker's socket lies in TMPDIR, and its whole path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def terminal(project, short_folder):
    """Run `flatout run WORDS` on a terminal of 80 columns; `act` is done to it once a panel with steps was drawn."""
    temporary = short_folder

    def run(*words, act=""):
        ended = subprocess.run(
            [sys.executable, "-c", TERMINAL, act, *words], cwd=project.folder, capture_output=True, text=True,
            timeout=120, env=_environment(project) | {"TMPDIR": str(temporary)},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found["same"]
        assert not project.left_behind()
        if act != "kill":
            assert not list(temporary.glob("flatout*"))
        assert re.findall(r"\x1b\[\?25[lh]", found["seen"])[-1:] != ["\x1b[?25l"]
        return Shown(found["code"], found["seen"])

    return run


def _environment(project):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": path, "PYTHONUNBUFFERED": "1", "TERM": "xterm", MARK: project.mark}
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own | project.environment


@pytest.mark.full
def test_a_training_shows_a_panel_and_is_what_it_was(project, terminal):
    project.recipe("counts")
    project.write(
        training(steps=300, workers=1, each_step="if done % 50 == 0: print('done', done)", after="sys.exit(7)")
    )
    shown = terminal("--live", "train.py")
    assert shown.code == 7
    panel = next(frame for frame in reversed(shown.frames) if "network" in frame)
    assert re.search(r"train.py, \d+\.\d+ s, step \d+", panel)
    assert re.search(r"^  host +\d+\.\d+ ms +\d+%", panel, re.MULTILINE)
    assert re.search(r"^  epoch \d+ +\d/8 ", panel, re.MULTILINE)
    assert re.search(r"^  cores ", panel, re.MULTILINE)
    assert any(re.search(r"^  ready +[012] of 2 ", frame, re.MULTILINE) for frame in shown.frames)
    assert shown.left[2:8] == [f"done {number}" for number in range(50, 301, 50)]
    assert re.fullmatch(r"flatout: train.py: 300 steps in \d+\.\d+ s, \d+\.\d+ ms each", shown.left[8])
    assert re.fullmatch(r"flatout:   all of them: .*host \d+%.*", shown.left[9])
    assert shown.left[10:] == ["flatout: counts: SGD.step 300"]


@pytest.mark.full
def test_an_empty_recipe_attaches_the_probes_alone(project, terminal):
    project.recipe()
    watched = "print(sorted(name for name in sys.modules if name.startswith('flatout.fixes')))"
    project.write(training(steps=300, after=watched))
    shown = terminal("--live", "train.py")
    assert shown.code == 0
    assert shown.left[:2] == ["flatout: flatout.toml holds no fix: train.py trains unchanged", "[]"]
    assert shown.left[2].startswith("flatout: train.py: 300 steps in ")


@pytest.mark.full
def test_a_script_that_fails_shows_its_traceback_and_its_exit_code(project, terminal):
    project.recipe("counts")
    project.write(training(steps=200, after="1 / 0"))
    shown = terminal("--live", "train.py")
    assert shown.code == 1
    assert "ZeroDivisionError: division by zero" in shown.left
    assert any(line.startswith("flatout: train.py: 200 steps") for line in shown.left)


@pytest.mark.full
def test_ctrl_c_reaches_the_script_once_and_the_terminal_is_as_it_was(project, terminal):
    project.recipe("counts")
    handler = "import signal\ndef told(*_):\n    print('got it')\n    sys.exit(9)\nsignal.signal(signal.SIGINT, told)"
    project.write(training(before=handler))
    shown = terminal("--live", "train.py", act="ctrl-c")
    assert shown.code == 9
    assert sum("got it" in line for line in shown.left) == 1
    assert any(line.startswith("flatout: train.py: ") for line in shown.left)


@pytest.mark.full
def test_a_script_that_does_not_handle_ctrl_c_ends_as_it_would_alone(project, terminal):
    project.recipe("counts")
    project.write(training())
    shown = terminal("--live", "train.py", act="ctrl-c")
    assert shown.code == 130
    assert "KeyboardInterrupt" in shown.left


def test_a_flatout_that_was_killed_leaves_no_script_and_no_hidden_cursor(project, terminal):
    project.recipe("counts")
    project.write(training())
    assert terminal("--live", "train.py", act="kill").code == -9


@pytest.mark.full
def test_what_a_script_does_to_its_terminal_does_not_reach_the_panel(project, terminal):
    project.recipe("counts")
    hostile = r"print('\x1b[2J\x1b[H\x1b[?1049h\x1b]0;title\x07\x1b[31mred\x1b[0m', end='\r' if done % 2 else '\n')"
    project.write(training(steps=200, each_step=hostile, after="print(sys.stdout.isatty(), os.get_terminal_size(1))"))
    shown = terminal("--live", "train.py")
    assert "\x1b[31mred\x1b[0m" in shown.seen
    assert not any(each in shown.seen for each in ("\x1b[2J", "\x1b[H", "\x1b[?1049h", "\x1b]0;"))
    assert shown.left.count("red") == 100
    assert "True os.terminal_size(columns=80, lines=40)" in shown.left


@pytest.mark.full
def test_two_ranks_have_a_line_each(project, terminal):
    project.recipe("counts", script="ddp.py")
    project.write(DISTRIBUTED.replace("range(5)", "range(600)"), "ddp.py")
    shown = terminal("--live", "--", "torchrun", "--nproc-per-node", "2", "ddp.py")
    assert shown.code == 0, shown.seen
    assert any(re.search(r"^  rank 0 .*\n  rank 1 ", frame, re.MULTILINE) for frame in shown.frames)
    assert any("the slowest of 2" in frame for frame in shown.frames)
    assert any(re.search(r"the slowest of 2\)", line) for line in shown.left[-4:])


# ------------------------------------------------------------------------------------------------- where it is not seen
@pytest.mark.full
def test_where_stderr_is_no_terminal_that_is_said_and_the_training_is_as_without_it(project):
    project.recipe("counts")
    project.write(
        training(steps=5, each_step="print(repr(loss.item()))", after="print(os.environ.get('FLATOUT_ORDER'))")
    )
    ended = project("run", "--live", "train.py")
    assert ended.code == 0
    assert ended.err.count("flatout: --live needs a terminal to draw on, and stderr is none") == 1
    assert ended.out.splitlines()[:5] == plain(project, "train.py").stdout.splitlines()[:5]


def test_output_that_goes_to_a_file_and_input_from_one_are_the_script_s_own(project, tmp_path):
    project.recipe("counts")
    project.write(
        training(steps=3, before="text = sys.stdin.buffer.read()", after="sys.stdout.buffer.write(text); 1 / 0")
    )
    data = bytes(range(256)) * 1000
    ours, theirs = os.openpty()
    shown = bytearray()

    def read():  # all the while: a terminal that nobody reads takes some thousand bytes and then holds up who writes
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65536):
                shown.extend(chunk)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "flatout", "run", "--live", "train.py"], cwd=project.folder, input=data,
            stdout=subprocess.PIPE, stderr=theirs, timeout=120, env=_environment(project),
        )  # fmt: skip
    finally:
        os.close(theirs)
        reading.join()
        os.close(ours)
    assert (ended.returncode, ended.stdout) == (1, data)
    assert b"ZeroDivisionError" in shown


def test_a_checkpoint_under_a_bitwise_recipe_is_that_of_the_plain_script_with_and_without_a_panel(project, terminal):
    project.recipe("counts", "modules")
    project.write(training(steps=16, workers=1, after=CHECKPOINT))
    plain(project, "train.py", "alone.pt")
    assert project("run", "train.py", "under.pt").code == 0
    assert terminal("--live", "train.py", "shown.pt").code == 0
    alone, under, shown = ((project.folder / f"{name}.pt").read_bytes() for name in ("alone", "under", "shown"))
    assert alone.replace(b"alone", b"under") == under
    assert alone.replace(b"alone", b"shown") == shown
