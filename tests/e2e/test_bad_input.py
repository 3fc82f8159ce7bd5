"""What goes wrong before, in, and after a script: the message, the exit code, and what is kept."""

import json
import os
import re
import signal
import sys

import pytest

from flatout.schema.codec import write_run
from tests.e2e.support import training, wait_until
from tests.unit.report import specimens


def said(ended):
    return " ".join(ended.err.split())


# ------------------------------------------------------------------------------------------ before anything is run


def test_a_script_that_does_not_exist_is_wrong_usage(flatout):
    ended = flatout.diagnose("train.py")
    assert ended.code == 2
    assert "train.py does not exist." in said(ended)
    assert str(flatout.folder) in said(ended)


def test_a_folder_in_place_of_a_script_is_wrong_usage(flatout):
    (flatout.folder / "src").mkdir()
    ended = flatout.diagnose("src")
    assert ended.code == 2
    assert "src is a folder without __main__.py." in said(ended)


@pytest.mark.full
def test_a_python_that_is_named_by_its_path_is_a_launcher(flatout):
    flatout.write(training(steps=12))
    ended = flatout.diagnose("--", sys.executable, "train.py")
    assert ended.code == 0, ended.err
    assert ended.run.num_steps == 12


def test_a_folder_named_like_a_script_is_wrong_usage(flatout):
    (flatout.folder / "train.py").mkdir()
    ended = flatout.diagnose("train.py")
    assert ended.code == 2
    assert "train.py is a folder." in said(ended)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (b"for x in\n", "line 1"),
        (b"\x00\x01\x02", "null bytes"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not a Python"),
        ("# caf\u00e9\nprint('\u00e9')\n".encode("latin-1"), "utf-8"),
    ],
    ids=["syntax", "nulls", "picture", "latin"],
)
def test_a_file_that_is_no_python_is_wrong_usage(flatout, source, what):
    (flatout.folder / "train.py").write_bytes(source)
    ended = flatout.diagnose("train.py")
    assert ended.code == 2
    assert "train.py is not a Python" in said(ended)
    assert what in said(ended)
    assert "None" not in said(ended)
    assert not (flatout.folder / ".flatout").exists()


def test_a_launcher_that_does_not_exist_is_wrong_usage(flatout):
    ended = flatout.diagnose("--", "trochrun", "--nproc-per-node", "2", "train.py")
    assert ended.code == 2
    assert "trochrun is neither a Python file nor a command on PATH." in said(ended)


@pytest.mark.parametrize("option", ["-S", "-I", "-E", "-uE", "-BI"])
def test_a_python_that_nothing_can_attach_to_is_refused_before_it_runs(flatout, option):
    flatout.write("open('ran', 'w')")
    ended = flatout.diagnose("--", "python", "-X", "dev", option, "train.py")
    assert ended.code == 3
    assert f"flatout cannot attach to python {option}." in said(ended)
    assert "PYTHONPATH" in said(ended)
    assert not (flatout.folder / "ran").exists()


@pytest.mark.full
def test_a_script_that_hides_an_isolated_python_is_ended_soon_with_the_reason(flatout):
    flatout.write("import time; time.sleep(60)")
    launcher = flatout.write(f"#!/bin/sh\nexec {sys.executable} -I train.py\n", "launch.sh")
    launcher.chmod(0o755)
    ended = flatout.diagnose("--", "./launch.sh")
    assert ended.code == 3
    assert "flatout could not attach to launch.sh" in said(ended)
    assert "PYTHONPATH" in said(ended)


def test_a_file_as_out_folder_is_wrong_usage(flatout):
    flatout.write(training())
    (flatout.folder / "results").write_text("mine")
    ended = flatout.diagnose("--out", "results", "train.py")
    assert ended.code == 2
    assert "results" in said(ended)
    assert (flatout.folder / "results").read_text() == "mine"


def test_a_file_named_like_our_folder_is_wrong_usage(flatout):
    flatout.write(training())
    (flatout.folder / ".flatout").write_text("mine")
    ended = flatout.diagnose("train.py")
    assert ended.code == 2
    assert ".flatout cannot be written (Not a directory)." in said(ended)
    assert "--out" in said(ended)


def test_an_out_folder_without_permission_is_wrong_usage(flatout):
    flatout.write(training())
    if os.geteuid() == 0:
        out = "/sys/flatout"  # where not even root may make a folder
    else:
        (flatout.folder / "locked").mkdir(mode=0o500)
        out = "locked/out"
    ended = flatout.diagnose("--out", out, "train.py")
    assert ended.code == 2
    assert "cannot be written (" in said(ended)
    assert "--out" in said(ended)


def test_two_flatouts_in_one_folder_do_not_measure_each_other(flatout):
    flatout.write(training())
    first = flatout.start("diagnose", "train.py")
    assert wait_until(lambda: list(flatout.folder.glob(".flatout/*/*/guard.lock")))
    second = flatout.diagnose("train.py")
    assert second.code == 2
    assert f"Another flatout (process {first.pid}) is running in {flatout.folder}." in said(second)
    first.send_signal(signal.SIGINT)
    assert flatout.wait(first).code == 130


def test_warnings_about_the_source_are_the_script_s_own(flatout):
    flatout.write("x = 1\nassert x is 1, 'a warning of the compiler'\n")
    ended = flatout.diagnose("train.py")
    assert "SyntaxWarning" not in ended.err
    assert "SyntaxWarning" in ended.log()


# ------------------------------------------------------------------------------------------------ the script fails


def test_a_script_that_fails_at_import_shows_its_traceback_and_exit_code(flatout):
    flatout.write("import torch\nimport no_such_package\n")
    ended = flatout.diagnose("train.py")
    assert ended.code == 1
    assert "train.py failed with exit code 1 after 0 steps." in said(ended)
    assert "ModuleNotFoundError: No module named 'no_such_package'" in said(ended)
    assert 'train.py", line 2' in said(ended)


def test_a_script_that_fails_half_way_shows_what_was_measured(flatout):
    flatout.write(training(each_step="if done == 31: raise RuntimeError('half way')"))
    ended = flatout.diagnose("train.py", steps=200)
    assert ended.code == 1
    assert "Each step takes" in ended.out
    assert re.search("train.py failed with exit code 1 after 3[01] steps", said(ended))
    assert "RuntimeError: half way" in said(ended)
    assert len(ended.run.steps) >= 30
    assert not (ended.recording / "order-deep.json").exists()


def test_a_script_that_leaves_with_an_exit_code_has_it_named(flatout):
    flatout.write("import sys\nprint('usage: train.py DATA')\nsys.exit(3)\n")
    ended = flatout.diagnose("train.py")
    assert ended.code == 1
    assert "train.py failed with exit code 3 after 0 steps." in said(ended)
    assert "usage: train.py DATA" in said(ended)


def test_a_module_that_does_not_exist_is_the_script_s_failure(flatout):
    ended = flatout.diagnose("-m", "no_such_package.train")
    assert ended.code == 1
    assert "no_such_package.train failed with exit code 1" in said(ended)
    assert "No module named" in said(ended)


@pytest.mark.full
def test_a_dataset_that_fails_at_one_index_is_told_by_its_index(flatout):
    before = "def check(self, index, get=Data.__getitem__):\n"
    before += "    if index == 17: raise ValueError(f'sample {index} is damaged')\n"
    before += "    return get(self, index)\nData.__getitem__ = check\n"
    flatout.write(training(before=before, workers=1))
    ended = flatout.diagnose("train.py", steps=200)
    assert ended.code == 1
    assert "ValueError: sample 17 is damaged" in said(ended)
    assert "train.py" in said(ended)


# ----------------------------------------------------------------------------------------------- nothing to measure


def test_a_script_without_torch_is_told_so(flatout):
    flatout.write("print('hello')")
    ended = flatout.diagnose("train.py")
    assert ended.code == 3
    assert "train.py never imported torch" in said(ended)
    assert "hello" in ended.log()


def test_a_script_without_an_optimizer_step_is_told_so(flatout):
    flatout.write("import torch\ntorch.ones(3).sum()\n")
    ended = flatout.diagnose("train.py")
    assert ended.code == 3
    assert "without an optimizer step" in said(ended)
    assert "optimizer steps" in said(ended)


@pytest.mark.full
def test_a_script_that_hangs_before_its_first_step_is_ended_at_the_budget(flatout):
    flatout.write("import torch, time\nprint('waiting for the data', flush=True)\ntime.sleep(600)\n")
    ended = flatout("diagnose", "--budget", "9s", "train.py")
    assert ended.code == 3
    assert "train.py made no optimizer step in" in said(ended)
    assert "--budget" in said(ended)
    assert "waiting for the data" in ended.log()


# -------------------------------------------------------------------------------------------- strange, and it works


@pytest.mark.full
def test_a_script_of_two_steps_is_measured_and_said_to_be_short(flatout):
    flatout.write(training(steps=2))
    ended = flatout.diagnose("train.py")
    assert ended.code == 0, ended.err
    assert len(ended.run.steps) == 2
    assert "MS002 too-few-steps" in ended.out


@pytest.mark.full
def test_losses_that_are_nan_do_not_keep_a_script_from_being_measured(flatout):
    flatout.write(training(before="torch.nn.init.constant_(model.weight, float('nan'))"))
    ended = flatout("diagnose", "--steps", "20", "--json", "out.json", "train.py")
    assert ended.code == 0, ended.err
    assert len(ended.run.losses) >= 20
    assert all(loss != loss for loss in ended.run.losses)
    assert json.loads((flatout.folder / "out.json").read_text(), parse_constant=pytest.fail)["schema"] == 1


@pytest.mark.full
def test_hostile_names_are_escaped_and_work(flatout):
    name = 'it\'s [bold]a "b"\n\u00fc \x1b[31m.py'
    flatout.write(training(each_step="sys.stdout.flush()"), name)
    ended = flatout.diagnose(name)
    assert ended.code == 0, ended.err
    assert "[bold]a" in ended.out
    assert "\x1b" not in ended.out + ended.err
    assert ended.run.header.script == name
    again = flatout("report", ".flatout")
    assert again.code == 0, again.err
    assert "\x1b" not in again.out + again.err


def test_a_name_that_is_no_text_works(flatout):
    name = os.fsdecode(b"tr\xffin.py")
    flatout.write("import torch\nraise SystemExit(4)\n", name)
    ended = flatout.diagnose(name)
    assert ended.code == 1
    assert "failed with exit code 4" in said(ended)


# ------------------------------------------------------------------------------------------------------- recordings


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines of a recording."""
    path = tmp_path_factory.mktemp("recorded") / "run.jsonl"
    write_run(specimens.run(input=60, forward=20, backward=20), path)
    return path.read_text().splitlines()


@pytest.mark.full
def test_a_recording_whose_last_line_was_cut_off_is_shown(flatout, lines):
    flatout.write("\n".join(lines)[:-20], "kept/run.jsonl")
    ended = flatout("report", "kept")
    assert ended.code == 0, ended.err
    assert "Each step takes" in ended.out


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda lines: ["{" + lines[0], *lines[1:]], "line 1"),
        (lambda lines: [*lines[:2], "damage", *lines[2:]], "line 3"),
        (lambda lines: ['{"kind":"flatout","schema":99}', *lines[1:]], "schema 99"),
        (lambda lines: lines[1:], "not a flatout recording"),
        (lambda lines: ["a,b", "1,2"], "damaged"),
        (lambda lines: [], "not a flatout recording"),
        (lambda lines: [lines[0], '{"kind":"steps","start_ns":["x"]}', "{}"], "damaged"),
        (lambda lines: [lines[0], '{"kind":"header","value":[]}', ""], "damaged"),
        (lambda lines: [lines[0], '{"kind":"steps","start_ns":[1],"wall_ns":[1,2],"phases_ns":[[1]]}', ""], "damaged"),
    ],
)
def test_a_recording_that_cannot_be_trusted_is_refused(flatout, lines, change, what):
    flatout.write("\n".join(change(lines)) + "\n", "kept/run.jsonl")
    ended = flatout("report", "kept")
    assert ended.code == 2, ended.err
    assert what in said(ended)


def test_a_recording_that_is_no_text_is_refused(flatout):
    flatout.write("", "kept/run.jsonl").write_bytes(bytes(range(256)))
    ended = flatout("report", "kept")
    assert ended.code == 2
    assert "cannot be read as a recording" in said(ended)


def test_a_folder_without_a_recording_is_wrong_usage(flatout):
    ended = flatout("report", ".")
    assert ended.code == 2
    assert "holds no recording" in said(ended)
    assert "flatout diagnose" in said(ended)
