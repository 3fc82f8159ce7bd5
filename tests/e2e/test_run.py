"""`flatout run`: the script's own streams, signals and exit code; the recipe's fixes in every process that trains."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flatout.engine.recipe import RECIPE_FILE, write_recipe
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection
from tests.e2e.support import Flatout, training, wait_until

PROOF = Proof(date="2026-11-20", flatout="0.1.0", python="", torch="", device="")

FIXES = '''
"""Fixes that show where they are.

## What it does
"""
from flatout.fixes.core.fix import Fix
from flatout.schema.trial import Equivalence


def count(site, often: int = 1):
    def make(original):
        def step(optimizer, *args, **kwargs):
            site.hit("SGD.step")
            return original(optimizer, *args, **kwargs)
        return step
    site.wrap("torch.optim:SGD.step", make)


def modules(site):
    site.outermost.each(lambda module: site.hit(type(module).__name__), lambda module: None)
    def around(module, inner):
        site.hit("forward")
        return inner
    site.outermost.around_forward(around)


def breaks(site):
    raise RuntimeError("no such machine\\nand more")


def idle(site): ...


def fix(name, patch, **more):
    return Fix(name=name, equivalence=Equivalence.BITWISE, phases=(), patch=patch, **more)


FIXES = (
    fix("counts", count, environment={"FLATOUT_TEST_NEEDS": "this", "FLATOUT_TEST_OWN": "ours"}),
    fix("modules", modules),
    fix("breaks", breaks),
    fix("idle", idle),
)
'''


def prepared(flatout):
    """Return the command line in a project with the fixes above, and `recipe(...)` to write flatout.toml."""
    flatout.write(FIXES, "shown_fixes.py")
    flatout.environment |= {"FLATOUT_EXTRA_FIXES": "shown_fixes", "PYTHONPATH": str(flatout.folder)}

    def recipe(*names, script="train.py", proof=PROOF, name=RECIPE_FILE):
        kept = tuple(Kept(selection=Selection(each), equivalence=Equivalence.BITWISE) for each in names)
        write_recipe(Recipe(script=script, fixes=kept, proof=proof), flatout.folder / name)

    flatout.recipe = recipe
    return flatout


@pytest.fixture
def project(flatout):
    """A project of one test's own."""
    return prepared(flatout)


CHILD = "import sys; print(sorted(name for name in sys.modules if name.startswith('flatout')))"
TOLD = f"""
import subprocess
child = subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True).stdout
needed = [os.environ["FLATOUT_TEST_NEEDS"], os.environ["FLATOUT_TEST_OWN"]]
open("told.json", "w").write(__import__("json").dumps([child, needed]))
sys.stdout.buffer.write(text)
"""
INPUT = bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training that several tests look at: how it ended, its output, and what it and a child of its own saw."""
    folder = tmp_path_factory.mktemp("trained") / "project"
    folder.mkdir()
    project = prepared(Flatout(folder))
    project.recipe("counts", "breaks", "modules", "idle", proof=replace(PROOF, script_digest="0" * 16, num_cpus=999))
    project.write(training(steps=30, before="text = sys.stdin.buffer.read()", after=TOLD))
    ended = subprocess.run(
        [sys.executable, "-m", "flatout", "run", "train.py"], cwd=folder, input=INPUT, capture_output=True,
        timeout=120, env=os.environ | project.environment | {"FLATOUT_TEST_OWN": "mine"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    child, needed = json.loads((folder / "told.json").read_text())
    return SimpleNamespace(out=ended.stdout, err=ended.stderr.decode(), child=child, needed=needed)


def plain(flatout, *words):
    """Run the script as it would run without flatout."""
    return subprocess.run([sys.executable, *words], cwd=flatout.folder, capture_output=True, text=True, timeout=120)


def lines(ended):
    return [line.removeprefix("flatout: ") for line in ended.err.splitlines() if line.startswith("flatout: ")]


def acts(ended):
    """Return these lines without the last one, that says how long the training took."""
    *before, last = lines(ended)
    assert re.fullmatch(r"trained [\d,]+ steps in .+", last)
    return before


# ----------------------------------------------------------------------------------------------------- the script's own
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.full
def test_the_exit_code_is_the_script_s(project, code):
    project.recipe("counts")
    project.write(training(steps=3, after=f"sys.exit({code})"))
    assert project("run", "train.py").code == code


def test_a_script_killed_by_a_signal_ends_as_the_shell_says_and_what_was_done_is_known(project):
    project.recipe("counts", "idle")
    project.write(training(steps=20, after="os.kill(os.getpid(), 9)"))
    ended = project("run", "train.py")
    assert ended.code == 128 + 9
    counted, idle = acts(ended)[-2:]
    assert re.fullmatch(r"counts: SGD.step 1[0-9]", counted)
    assert "may not have acted: the script was killed by SIGKILL; memory may" in idle


@pytest.mark.full
def test_a_checkpoint_is_there_when_flatout_ends_also_where_the_script_was_killed_while_it_was_written(project):
    project.recipe("async-checkpoint")
    slow = "from flatout.fixes.checkpoint import snapshot; snapshot.Snapshot.write = lambda *_: time.sleep(60)"
    save = "torch.save({'w': torch.arange(1000.0)}, 'model.pt'); import ctypes; ctypes.CDLL(None).kill(os.getpid(), 9)"
    project.write(training(steps=3, before=slow, after=save))
    ended = project("run", "train.py")
    assert ended.code == 128 + 9
    assert sorted(name for name in os.listdir(project.folder) if "model" in name) == ["model.pt"]
    assert zipfile.is_zipfile(project.folder / "model.pt")
    assert "model.pt is whole: it was written after the end of the process that saved it" in ended.err


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise KeyboardInterrupt", "had not acted when the script was interrupted (Ctrl-C)"),
        ("sys.exit(3)", "had not acted when the script ended with exit code 3"),
        ("", "found nothing to act on"),
    ],
)
@pytest.mark.full
def test_a_fix_that_did_nothing_is_not_blamed_for_the_end_of_the_script(end, said, project):
    project.recipe("idle")
    project.write(training(steps=3, after=end))
    assert any(said in line for line in lines(project("run", "train.py")))


def test_a_traceback_is_the_script_s_own(project):
    project.recipe("counts")
    project.write(training(steps=3, after="1 / 0"))
    ended = project("run", "train.py")
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err
    assert "flatout/" not in ended.err.replace(str(project.folder), "")


@pytest.mark.full
def test_output_is_the_same_to_the_last_byte_and_arguments_are_untouched(project):
    project.recipe("counts", "modules")
    project.write(training(steps=5, each_step="print(repr(loss.item()))", after="print(sys.argv, __name__, __file__)"))
    words = ("train.py", "--verbose", "--only", "x y", "--", "-m", "")
    ended = project("run", *words)
    assert ended.out == plain(project, *words).stdout
    assert len(ended.out.splitlines()) == 6


@pytest.mark.full
def test_binary_output_and_errors_pass_through(project):
    project.recipe("counts")
    project.write(training(steps=3, after=r"os.write(1, b'\xff\x00\r\n'); os.write(2, b'\xfe\x01')"))
    command = [sys.executable, "-m", "flatout", "run", "train.py"]
    environment = os.environ | project.environment
    ended = subprocess.run(command, cwd=project.folder, capture_output=True, timeout=120, env=environment)
    assert ended.stdout == b"\xff\x00\r\n"
    assert b"\xfe\x01" in ended.stderr


def test_input_passes_through(trained):
    assert trained.out == INPUT


@pytest.mark.full
def test_a_module_runs_as_a_module(project):
    project.recipe("counts", script="mine.train")
    project.write("", "mine/__init__.py")
    project.write(training(steps=3, after="print(__spec__.name, sys.argv[1:])"), "mine/train.py")
    ended = project("run", "-m", "mine.train", "a", "--b")
    assert ended.out == "mine.train ['a', '--b']\n"
    assert "counts: SGD.step 3" in lines(ended)


# -------------------------------------------------------------------------------------------------------------- signals
HANDLERS = """
import signal
def told(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\\n".encode())  # print may be under way: it cannot be entered again
    if number in (signal.SIGINT, signal.SIGTERM):
        sys.exit(7)
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(each, told)
"""


def started(project, *, handlers=HANDLERS):
    project.recipe("counts")
    project.write(training(before=handlers, each_step="if done == 3: print('ready', flush=True)"))
    process = project.start("run", "train.py")
    assert wait_until(lambda: "ready" in process.out_path.read_text(), 60)
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.few(1)
def test_signals_sent_to_flatout_reach_the_script_once_and_its_answer_counts(project, name):
    process = started(project)
    for other in ("SIGUSR1", "SIGHUP"):  # these end nothing
        process.send_signal(getattr(signal, other))
        assert wait_until(lambda other=other: f"got {other}" in process.out_path.read_text())
    assert process.poll() is None
    process.send_signal(getattr(signal, name))
    ended = project.wait(process, 30)
    assert ended.code == 7
    assert ended.out.splitlines() == ["ready", "got SIGUSR1", "got SIGHUP", f"got {name}"]
    assert any(line.startswith("counts: SGD.step") for line in lines(ended))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.few(1)
def test_a_script_without_handlers_ends_as_it_would_alone(project, name, code):
    process = started(project, handlers="")
    process.send_signal(getattr(signal, name))
    ended = project.wait(process, 30)
    assert ended.code == code
    assert ("KeyboardInterrupt" in ended.err) == (name == "SIGINT")
    assert "Interrupted." not in ended.err


def test_a_script_never_outlives_a_flatout_that_was_killed(project):
    process = started(project)
    process.kill()
    process.wait()
    assert not project.left_behind()


@pytest.mark.full
def test_signals_that_were_blocked_or_ignored_are_so_in_the_script(project):
    project.recipe("counts")
    check = "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGCHLD))"
    project.write(training(steps=3, before="import signal\n" + check))
    assert project("run", "train.py").out == plain(project, "train.py").stdout


TERMINAL = """
import os, pty, subprocess, sys, time
pid, terminal = pty.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-m", "flatout", "run", "train.py"])
seen = b""
while b"ready" not in seen:
    seen += os.read(terminal, 1000)
os.write(terminal, b"\\x03")
try:
    while chunk := os.read(terminal, 1000):
        seen += chunk
except OSError:
    pass
print(seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.full
def test_ctrl_c_in_a_terminal_reaches_the_script_once(project):
    project.recipe("counts")
    project.write(training(before=HANDLERS, each_step="if done == 3: print('ready', flush=True)"))
    ended = subprocess.run(
        [sys.executable, "-c", TERMINAL], cwd=project.folder, capture_output=True, text=True, timeout=60,
        env=os.environ | project.environment,
    )  # fmt: skip
    assert ended.stdout.count("got SIGINT") == 1
    assert ended.stdout.rstrip().endswith(" 7")


# ------------------------------------------------------------------------------------------------------------ the fixes
def test_what_is_applied_is_said_before_and_what_was_done_after_and_a_fix_that_raises_is_left_out(trained):
    told = [line for line in acts(trained) if not line.startswith("warning: ")]
    assert told[0].startswith("train.py trains under flatout.toml")
    assert told[1:5] == [f"  {name} (BITWISE, 1.00x)" for name in ("counts", "breaks", "modules", "idle")]
    assert told[5:] == [
        "counts: SGD.step 30",
        "breaks could not act and was left out: RuntimeError: no such machine",
        "modules: Linear 1, forward 30",
        "idle: found nothing to act on",
    ]


@pytest.mark.full
def test_only_the_fixes_that_were_asked_for_are_applied(project):
    project.recipe("counts", "modules")
    project.write(training(steps=3))
    assert [line.partition(":")[0] for line in lines(project("run", "--only", "Modules", "train.py"))[2:]] == [
        "modules"
    ]


def test_what_a_fix_needs_in_the_environment_is_there_unless_the_user_has_set_it(trained):
    assert trained.needed == ["this", "mine"]


def test_a_process_that_does_not_import_torch_is_left_alone(trained):
    assert trained.child == "[]\n"


def test_an_empty_recipe_trains_the_plain_script(project):
    project.recipe()
    project.write(training(steps=3, after="print('FLATOUT_ORDER' in os.environ, 'flatout' in sys.modules)"))
    ended = project("run", "train.py")
    assert ended.out == "False False\n"
    assert lines(ended) == ["flatout.toml holds no fix: train.py trains unchanged"]


@pytest.mark.full
def test_files_are_the_script_s_own(project):
    project.recipe("counts")
    project.write(training(steps=3, after="open('made.txt', 'w').write('x'); torch.save(model, 'whole.pt')"))
    project("run", "train.py")
    kept = {path.name for path in project.folder.iterdir()} - {"__pycache__"}
    assert kept == {"train.py", "shown_fixes.py", RECIPE_FILE, "made.txt", "whole.pt"}
    load = "import torch; print(type(torch.load('whole.pt', weights_only=False)).__name__)"
    assert plain(project, "-c", load).stdout == "Linear\n"


CHECKPOINT = "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, sys.argv[1])"


@pytest.mark.full
def test_workers_and_forked_trainings_count_too(project):
    project.recipe("counts")
    forks = """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    done = 0
    children = [context.Process(target=main) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    """
    project.write(training(steps=5, workers=2, after=textwrap.dedent(forks)))
    assert "counts: SGD.step 15" in lines(project("run", "train.py"))


@pytest.mark.full
def test_spawned_trainings_count_too(project):
    project.recipe("counts")
    spawns = """
    import torch.multiprocessing
    torch.multiprocessing.get_context("spawn").Process(target=main).start()
    """
    project.write(training(steps=5, after=textwrap.dedent(spawns)))
    assert "counts: SGD.step 10" in lines(project("run", "train.py"))


DISTRIBUTED = """
import gc, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
del model, optimizer
gc.collect()  # a group that a module holds to the end may abort the process there: its threads want the interpreter
dist.destroy_process_group()
sys.exit(int(os.environ["RANK"]) * 0)
"""


def test_every_rank_of_torchrun_trains_under_the_recipe(project):
    project.recipe("counts", "modules", script="ddp.py")
    project.write(DISTRIBUTED, "ddp.py")
    ended = project("run", "--verbose", "--", "torchrun", "--nproc-per-node", "2", "ddp.py")
    assert ended.code == 0, ended.err
    told = acts(ended)
    assert "counts: SGD.step 10" in told
    assert "modules: DistributedDataParallel 2, forward 10" in told
    assert told[-2:] == ["rank 0: 5 optimizer steps", "rank 1: 5 optimizer steps"]


@pytest.mark.full
def test_a_python_that_imports_torch_before_the_script_is_reached(project):
    project.recipe("counts")
    project.write("import torch\n", "library/sitecustomize.py")
    project.environment["PYTHONPATH"] += f":{project.folder / 'library'}"
    project.write(training(steps=10))
    ended = project("run", "--verbose", "train.py")
    assert acts(ended)[-2:] == ["counts: SGD.step 10", "rank 0: 10 optimizer steps"], ended.err


def test_a_python_that_cannot_be_reached_is_said(project):
    project.recipe("counts")
    project.write(training(steps=3))
    project.write(f"#!/bin/sh\nexec {sys.executable} -E train.py\n", "start.sh").chmod(0o755)
    project.recipe("counts", script="start.sh")
    ended = project("run", "--", "./start.sh")
    assert ended.code == 0
    assert any("could not attach to any Python process of the script" in line for line in lines(ended))


# -------------------------------------------------------------------------------------------------- warnings and errors
def test_a_changed_script_is_a_warning(trained):
    assert "warning: train.py has changed since the recipe was proven" in lines(trained)
    assert any(line.startswith("warning: proven with 999 CPU cores, here are ") for line in lines(trained))


@pytest.mark.full
def test_other_data_than_it_was_proven_with_are_a_warning(project):
    project.write(training(steps=3))
    project.recipe("counts", proof=replace(PROOF, samples={"Data": 50}))
    assert "warning: proven with 50 samples in Data, here are 64" in lines(project("run", "train.py"))


def test_without_a_recipe_the_next_step_is_named(project):
    project.write(training(steps=3))
    ended = project("run", "train.py")
    assert (ended.code, ended.out) == (2, "")
    assert "flatout tune train.py" in ended.err


@pytest.mark.full
def test_the_recipe_beside_the_script_is_found_and_another_can_be_named(project):
    project.write(training(steps=3), "sub/train.py")
    project.recipe("counts", name="sub/flatout.toml")
    assert "counts: SGD.step 3" in lines(project("run", "sub/train.py"))
    project.recipe("idle", name="other.toml")
    assert lines(project("run", "--recipe", "other.toml", "sub/train.py"))[-1] == "idle: found nothing to act on"


def test_a_fix_that_does_not_exist_is_named_and_nothing_runs(project):
    project.write(training(steps=3, after="print('trained')"))
    project.recipe("count")
    ended = project("run", "train.py")
    assert (ended.code, ended.out) == (2, "")
    assert "'count'" in ended.err
    assert "Did you mean counts?" in ended.err


def test_a_fix_that_the_recipe_does_not_hold_is_named(project):
    project.write(training(steps=3))
    project.recipe("counts")
    ended = project("run", "--only", "modules", "train.py")
    assert ended.code == 2
    assert "There is no fix 'modules' in flatout.toml" in ended.err


def test_a_recipe_of_another_script_is_refused(project):
    project.write(training(steps=3), "other.py")
    project.recipe("counts")
    ended = project("run", "other.py")
    assert ended.code == 2
    assert "was proven for train.py, not for other.py" in ended.err
