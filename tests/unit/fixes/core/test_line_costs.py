"""The share of lines of some kind: by the package that they are in, else by their text."""

import re

import pytest

from flatout.fixes.core.line_costs import share_of_lines
from flatout.rules.core.example import example
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LineCost

DUMPS = re.compile(r"\bjson\.dumps?\(")


def share(*costs):
    return share_of_lines(example(step_ms=10, forward=8, causes=Causes(lines=costs)).run, {"json"}, DUMPS)


@pytest.fixture
def cost(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import json\njson.dump(rows, file)\nloss.backward()\n")

    def made(seconds, line=0, leaf="", process="main"):
        stack = (Frame(str(script), line, "main"),) if line else ()
        return LineCost(phase=Phase.HOST, stack=stack, leaf=leaf, seconds=seconds, process=process)

    return made


def test_lines_count_by_their_package_and_by_their_text(cost):
    assert share(cost(1.0, 2), cost(1.0, 3)) == 0.5
    assert share(cost(1.0, 3, leaf="json"), cost(1.0, leaf="json"), cost(2.0, 3)) == 0.5


def test_other_processes_and_lines_that_are_not_there_count_for_nothing(cost):
    assert share(cost(1.0, 2), cost(9.0, 2, process="worker")) == 1.0
    assert share(cost(1.0, 99)) == 0.0
    assert share() == 0.0


def test_a_file_that_has_changed_is_read_again(cost, tmp_path):
    assert share(cost(1.0, 3)) == 0.0
    (tmp_path / "train.py").write_text("import json\n\njson.dumps(rows)  # a line later now\n")
    assert share(cost(1.0, 3)) == 1.0
