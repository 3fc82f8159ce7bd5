"""Options of flatout that stand behind the script: the script refuses them, and the right command is said.

Modules: flatout.cli.script_command, flatout.cli.word_order.
"""

from importlib import import_module

import pytest

from flatout.cli.main import run
from flatout.cli.word_order import advice_on_order
from flatout.errors import ScriptFailed

REFUSED = "usage: train.py [-h] [--lr LR] [--steps S]\ntrain.py: error: unrecognized arguments: "


def command(name):
    return getattr(import_module(f"flatout.cli.{name}"), name)


def advice(name, line, complaint=""):
    return advice_on_order(command(name), line.split(), complaint)


@pytest.mark.parametrize(
    ("name", "line", "complaint", "right"),
    [
        ("tune", "train.py --budget 60s", f"{REFUSED}--budget 60s", "flatout tune --budget 60s train.py"),
        ("diagnose", "train.py --lr 1 --only IN001", "", "flatout diagnose --only IN001 train.py --lr 1"),
        ("diagnose", "train.py --whole x", f"{REFUSED}--whole", "flatout diagnose --whole train.py x"),
        (
            "tune",
            "-m pkg.train --budget=60s a",
            "Error: No such option: --budget",
            "flatout tune --budget=60s -m pkg.train a",
        ),
        ("run", "train.py --live", "", "flatout run --live train.py"),
        ("tune", "train.py --token=x1 --budget 1m", "", "flatout tune --budget 1m train.py '--token=***'"),
    ],
)
def test_the_right_command_is_said(name, line, complaint, right):
    said = advice(name, line, complaint)
    assert "stands behind the script. What follows a script is its own" in said
    assert said.endswith(f": {right}")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("train.py --lr 1", f"{REFUSED}--lr 1"),
        ("train.py --steps 5 --nope", f"{REFUSED}--nope"),
        ("torchrun train.py --budget 60s", ""),
        ("train.py", ""),
    ],
)
def test_where_it_is_the_scripts_own_fault_nothing_is_said(line, complaint):
    assert advice("diagnose", line, complaint) == ""


def test_a_script_that_refuses_an_option_of_ours_ends_with_the_advice(engine, project, capsys):
    engine.error = ScriptFailed("train.py failed with exit code 2 after 0 steps.", f"{REFUSED}--steps 5", "Run it.")
    engine.error.refused_its_arguments = True
    assert run(["diagnose", "train.py", "--steps", "5"]) == 1
    said = capsys.readouterr().err
    assert "flatout diagnose --steps 5 train.py" in " ".join(said.split())
    assert "Run it." not in said
