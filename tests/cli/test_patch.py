"""`flatout patch`: what goes to stdout, what to stderr, and what it ends with."""

import hashlib
import os
import time

import pytest

from flatout.cli.main import run
from flatout.schema.codec import write_run
from flatout.schema.facts import Frame, LoaderFacts
from flatout.schema.run import Header, Run

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.RMSprop(model.parameters())
loader = DataLoader(data, batch_size=4)
for x in loader:
    model(x).sum().backward()
    optimizer.step()
"""
LOADERS = 'name = "loader-workers"\nequivalence = "BITWISE"\nsettings = {workers = 2, persistent = true}'
FUSED = 'name = "fused-optimizer"\nequivalence = "ROUNDING"\nsettings = {implementation = "fused"}'
INPUT = 'name = "compiled-input"\nequivalence = "BITWISE"'
THREADS = 'name = "cpu-threads"\nequivalence = "ROUNDING"\nsettings = {threads = 1}'


def recipe(*fixes, digest="", script="train.py"):
    tables = "".join(f"[[fix]]\n{each}\n\n" for each in fixes)
    proven = f'date = ""\nflatout = ""\npython = ""\ntorch = ""\ndevice = ""\nscript_digest = "{digest}"\n'
    return f'schema = 1\nscript = "{script}"\n\n{tables}[proven]\n{proven}'


@pytest.fixture
def tuned(project):
    (project / "train.py").write_text(SCRIPT)
    digest = hashlib.sha256(SCRIPT.encode()).hexdigest()[:16]
    (project / "flatout.toml").write_text(recipe(LOADERS, FUSED, THREADS, digest=digest))
    return project


def test_the_diff_is_all_of_stdout_and_the_reasons_are_on_stderr(tuned, capfdbinary, golden):
    assert run(["patch", "train.py"]) == 0
    out, err = capfdbinary.readouterr()
    golden("patch", f"{err.decode()}----\n{out.decode()}")
    assert (tuned / "train.py").read_text() == SCRIPT


def test_only_some_fixes_are_written_when_they_are_named(tuned, capfdbinary):
    assert run(["patch", "--only", "cpu_threads", "train.py"]) == 0
    out, err = capfdbinary.readouterr()
    assert b"num_workers" not in out
    assert b"fused" not in err


def test_an_option_behind_the_script_is_refused_and_not_taken_for_the_scripts(tuned, capsys):
    assert run(["patch", "train.py", "--write"]) == 2
    assert "--write stands behind the script" in capsys.readouterr().err
    assert (tuned / "train.py").read_text() == SCRIPT
    assert run(["patch", "train.py", "--epochs", "3"]) == 0  # as the script is called


def test_a_fix_that_is_not_in_the_recipe_is_wrong_usage(tuned, capsys):
    assert run(["patch", "--only", "tf32", "train.py"]) == 2
    assert "no fix 'tf32' in flatout.toml" in capsys.readouterr().err


def test_the_files_are_changed_only_when_asked_and_kept_beside(tuned, capfdbinary):
    assert run(["patch", "--write", "train.py"]) == 0
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert b"train.py is changed; the original is in train.py.orig" in err
    assert (tuned / "train.py.orig").read_text() == SCRIPT
    patched = (tuned / "train.py").read_text()
    assert "num_workers=2)" in patched
    assert run(["patch", "--write", "train.py"]) == 0
    assert (tuned / "train.py").read_text() == patched
    assert not (tuned / "train.py.orig.2").exists()


def test_a_script_that_has_changed_since_is_shown_but_not_written(tuned, capfdbinary):
    (tuned / "train.py").write_text(SCRIPT + "# more\n")
    assert run(["patch", "train.py"]) == 0
    assert b"warning: train.py has changed since the recipe was proven" in capfdbinary.readouterr().err
    assert run(["patch", "--write", "train.py"]) == 2
    assert b"train.py has changed since the recipe was proven" in capfdbinary.readouterr().err
    assert (tuned / "train.py").read_text() == SCRIPT + "# more\n"


def test_a_recording_counts_as_long_as_the_file_is_that_of_then(tuned, capfdbinary):
    text = SCRIPT.replace("for x in loader:\n", "library.walk(loader)\nother = DataLoader(data)\nfor x in given:\n")
    (tuned / "train.py").write_text(text)
    (tuned / "flatout.toml").write_text(recipe(INPUT))
    assert run(["patch", "train.py"]) == 3
    made = LoaderFacts(is_training=True, created_at=Frame(str(tuned / "train.py"), 6, "<module>"))
    header = Header(script="train.py", started_unix_s=time.time() + 10)
    folder = tuned / ".flatout" / "train.py" / "20260101-000000"
    folder.mkdir(parents=True)
    write_run(Run(header=header, loaders=(made,)), folder / "run.jsonl")
    assert run(["patch", "train.py"]) == 0
    assert b"+loader = flatout.compile_loader(DataLoader(data, batch_size=4))" in capfdbinary.readouterr().out
    os.utime(tuned / "train.py", times=(time.time() + 60, time.time() + 60))
    assert run(["patch", "train.py"]) == 3


def test_without_a_recipe_it_is_wrong_usage(project, capsys):
    assert run(["patch", "train.py"]) == 2
    assert "There is no recipe" in capsys.readouterr().err


def test_a_recipe_of_another_script_is_wrong_usage(tuned, capsys):
    (tuned / "flatout.toml").write_text(recipe(THREADS, script="other.py"))
    assert run(["patch", "train.py"]) == 2


def test_when_nothing_can_be_written_that_is_said_by_the_exit_code(tuned, capfdbinary):
    assert run(["patch", "--only", "fused-optimizer", "train.py"]) == 3
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert b"RMSprop has no fused implementation" in err


def test_a_module_is_patched_by_its_name(tuned, capfdbinary):
    (tuned / "jobs").mkdir()
    (tuned / "jobs" / "train.py").write_text(SCRIPT)
    (tuned / "flatout.toml").write_text(recipe(THREADS, script="jobs.train"))
    assert run(["patch", "-m", "jobs.train"]) == 0
    assert b"--- a/jobs/train.py\n+++ b/jobs/train.py\n" in capfdbinary.readouterr().out


def test_a_module_that_is_not_the_user_s_own_is_wrong_usage(tuned, capsys):
    assert run(["patch", "-m", "json.tool"]) == 2
    assert "no file of the module json.tool" in capsys.readouterr().err


def test_a_command_in_place_of_a_script_is_wrong_usage(tuned, capsys):
    assert run(["patch", "sh", "train.py"]) == 2
    assert "sh is not a file" in capsys.readouterr().err


def test_the_name_of_a_file_is_shown_without_what_a_terminal_obeys(tuned, capsys):
    (tuned / "bad\x1b.py").write_text(SCRIPT)
    (tuned / "flatout.toml").write_text(recipe(FUSED, script="bad\\u001b.py"))
    assert run(["patch", "bad\x1b.py"]) == 3
    assert "\x1b" not in capsys.readouterr().err


def test_findings_without_a_recording_or_beside_named_fixes_are_wrong_usage(tuned, capsys):
    assert run(["patch", "--findings", "train.py"]) == 2
    assert "holds no recording" in capsys.readouterr().err
    assert run(["patch", "--findings", "--only", "tf32", "train.py"]) == 2
    assert "Use one of the two" in capsys.readouterr().err
