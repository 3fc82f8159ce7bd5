"""`flatout diagnose --only loader` on the command line."""

import json
import sys
import types

import pytest
from tests.unit.report.test_loader_benchmark import FIGURES

from flatout.cli.main import run


@pytest.fixture
def measurement(monkeypatch, project):
    """Stand in for `flatout.engine.loader_benchmark`, which found one loader."""
    calls = []

    def measure_loaders(target, *, budget_s, out, watch, echo):
        calls.append((target.name, budget_s, out))
        if echo is not None:
            echo(b"epoch 1\n")
        return types.SimpleNamespace(script=target.name, loaders=(FIGURES,), notes=())

    module = types.ModuleType("flatout.engine.loader_benchmark")
    module.measure_loaders = measure_loaders
    monkeypatch.setitem(sys.modules, "flatout.engine.loader_benchmark", module)
    return calls


def test_the_loaders_are_shown_and_nothing_else_is_measured(measurement, engine, capsys):
    assert run(["diagnose", "--only", "LOADER", "--budget", "1m", "train.py"]) == 0
    assert "Photos, no workers" in capsys.readouterr().out
    assert measurement == [("train.py", 60.0, None)]
    assert engine.calls == []


def test_verbose_shows_the_output_of_the_script_on_stderr(measurement, capsys):
    assert run(["diagnose", "--only", "loader", "--verbose", "train.py"]) == 0
    assert "epoch 1" in capsys.readouterr().err


def test_json_on_stdout_is_json_and_nothing_else(measurement, capsys):
    assert run(["diagnose", "--only", "loader", "--json", "-", "train.py"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["loaders"][0]["name"] == "Photos"
    assert "Photos, no workers" in streams.err


def test_json_goes_to_the_file_that_is_named(measurement, project):
    assert run(["diagnose", "--only", "loader", "--json", "loaders.json", "train.py"]) == 0
    assert json.loads((project / "loaders.json").read_text())["script"] == "train.py"


@pytest.mark.parametrize(
    "more", [["--only", "IN003"], ["--steps", "5"], ["--whole"], ["--nproc-per-node", "2"], ["--price", "3/h"]]
)
def test_what_does_not_go_together_is_refused(measurement, capsys, more):
    assert run(["diagnose", "--only", "loader", *more, "train.py"]) == 2
    assert "leave out" in capsys.readouterr().err
    assert measurement == []
