"""Every way to start a script is observed, and the script is as it would be without.

Modules: flatout.inject.sitecustomize.
"""

import os
import subprocess
import sys

import pytest

from tests.e2e.support import Flatout, training

PRINT_LOSSES = "print('loss', loss.item().hex(), flush=True)"


def printed(text):
    return [float.fromhex(line.split()[1]) for line in text.splitlines() if line.startswith("loss ")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """One ordinary diagnosis, with a module path and a sitecustomize of the user's own."""
    folder = tmp_path_factory.mktemp("plain") / "project"
    folder.mkdir()
    flatout = Flatout(folder)
    before = """
import helper, sitecustomize
print("arguments", sys.argv, helper.__file__, flush=True)
print("customized", os.environ["CUSTOMIZED"], sitecustomize.OWN, flush=True)
print("input", repr(sys.stdin.read()), __name__, __file__, flush=True)
"""
    flatout.write(training(before=before, each_step=PRINT_LOSSES))
    flatout.write("", "library/helper.py")
    flatout.write("import os\nos.environ['CUSTOMIZED'] = 'yes'\nOWN = 'own'\n", "library/sitecustomize.py")
    flatout.environment["PYTHONPATH"] = str(folder / "library")
    ended = flatout.diagnose("train.py", "--lr", "0.1", "two words", "--steps", "7")
    assert ended.code == 0, ended.err
    yield flatout, ended
    assert flatout.left_behind() == []


@pytest.mark.full
def test_a_script_has_its_own_arguments(plain):
    _, ended = plain
    for mode in ("timed", "deep"):
        assert "arguments ['train.py', '--lr', '0.1', 'two words', '--steps', '7']" in ended.log(mode)
    assert ended.run.header.argv == ("train.py", "--lr", "0.1", "two words", "--steps", "7")
    assert len(ended.run.steps) >= 20


def test_a_script_is_the_main_program_with_an_empty_input(plain):
    flatout, ended = plain
    assert f"input '' __main__ {flatout.folder / 'train.py'}" in ended.log() or "__main__ train.py" in ended.log()


def test_the_user_s_python_path_holds(plain):
    flatout, ended = plain
    assert str(flatout.folder / "library" / "helper.py") in ended.log()


def test_the_user_s_own_sitecustomize_runs(plain):
    _, ended = plain
    assert "customized yes own" in ended.log()


def test_losses_are_those_of_the_plain_script_to_the_last_bit(plain):
    flatout, ended = plain
    losses = ended.run.losses
    assert len(losses) >= 20
    environment = {**os.environ, "PYTHONPATH": str(flatout.folder / "library")}
    with subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=flatout.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = []
        while len(printed("".join(lines))) < len(losses):
            lines.append(process.stdout.readline())
        process.kill()
    expected = printed("".join(lines))
    for mode in ("timed", "deep"):
        seen = printed(ended.log(mode))
        assert seen == expected[: len(seen)]
        assert len(seen) >= 20
    assert list(losses) == expected[: len(losses)]


def test_a_module_is_observed(flatout):
    flatout.write("", "package/__init__.py")
    flatout.write("import sys\n" + training(before="from . import part\nprint(sys.argv[1:])"), "package/train.py")
    flatout.write("", "package/part.py")
    ended = flatout.diagnose("-m", "package.train", "--epochs", "3")
    assert ended.code == 0, ended.err
    assert len(ended.run.steps) >= 20
    assert "['--epochs', '3']" in ended.log()
    assert ended.run.header.script == "package.train"


@pytest.mark.full
def test_a_python_with_options_is_observed(flatout):
    flatout.write(training(before="assert sys.flags.dev_mode"))
    ended = flatout.diagnose("--", "python", "-X", "dev", "-W", "ignore", "train.py")
    assert ended.code == 0, ended.err
    assert len(ended.run.steps) >= 20
    assert ended.run.header.script == "train.py"


WORKERS = """
class Slow(Data):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def __getitem__(self, index):
        self.make(index)
        return super().__getitem__(index)


def by_fork(index):
    sum(i * i for i in range(30_000))  # line of fork


def by_forkserver(index):
    sum(i * i for i in range(30_000))  # line of forkserver


def by_spawn(index):
    sum(i * i for i in range(30_000))  # line of spawn


def main():
    loaders = [
        DataLoader(Slow(make), batch_size=4, num_workers=1, multiprocessing_context=method, persistent_workers=True)
        for make, method in ((by_fork, "fork"), (by_forkserver, "forkserver"), (by_spawn, "spawn"))
    ]
    while True:
        for loader in loaders:
            for x, y in loader:
                step(x, y)
"""


@pytest.mark.full
def test_workers_are_observed_however_they_are_started(flatout):
    """The deep run names the line that is slow in each of them."""
    source = (
        training(step_s=0)
        .replace("def main():", "def unused():")
        .replace('if __name__ == "__main__":', WORKERS + '\n\nif __name__ == "__main__":')
    )
    flatout.write(source)
    ended = flatout.diagnose("train.py", steps=120)
    assert ended.code == 0, ended.err
    lines = source.splitlines()
    seen = {
        (os.path.basename(frame.file), lines[frame.line - 1].rpartition("# ")[2])
        for cost in ended.run.causes.lines
        if cost.process == "worker"
        for frame in cost.stack
        if frame.file.endswith("train.py")
    }
    for method in ("fork", "forkserver", "spawn"):
        assert ("train.py", f"line of {method}") in seen
    assert len({worker.pid for worker in ended.run.workers}) >= 3
    drawn = ended.run.causes.timeline
    assert {span.lane for span in drawn} >= {"steps", "training thread", "worker 0"}
    end_ns = max(span.start_ns + span.wall_ns for span in drawn if span.lane == "steps")
    inside = [span for span in drawn if span.start_ns < end_ns and span.start_ns + span.wall_ns > 0]
    assert {span.lane for span in drawn if span not in inside} <= {"worker 0"}
