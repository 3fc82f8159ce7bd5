"""The host time of one statement of the loop, after forward, backward and optimizer."""

import pytest

from flatout.rules import example, line
from flatout.rules.facts.user_lines import costs, hottest
from flatout.rules.source.statements import of_one_statement
from flatout.schema.phase import Phase

SOURCE = """\
def train():
    for x, y in loader:
        average.prepare()
        loss = model(x)
        loss.backward()
        optimizer.step()
        average.update(model)
        if step % 10 == 0:
            average.update(
                model)
class Average:
    def update(self, model):
        for weight in weights:
            self.blend(weight)
    def blend(self, weight):
        return weight
"""
UPDATE, BLEND = ("update", 13), ("blend", 16)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def called(script, *host):
    """Return what is found of the hottest function; `host` are seconds, function and the line of the loop."""

    def frame(at, name):
        return (script, at, name)

    lines = [
        line(1.0, frame(4, "train"), phase=Phase.FORWARD),
        line(1.0, frame(5, "train"), phase=Phase.BACKWARD),
        line(1.0, frame(6, "train"), phase=Phase.OPTIMIZER),
    ]
    for seconds, (name, at), loop in host:
        above = [] if name == "update" else [frame(14, "Average.update")]
        lines.append(line(seconds, frame(at, f"Average.{name}"), *above, frame(loop, "train"), phase=Phase.HOST))
    run = example(lines=lines).run
    among = costs(run, Phase.HOST)
    return of_one_statement(run, hottest(among, among))


def test_a_call_after_the_step_is_found_with_the_rest_of_its_class(script):
    found = called(script, (0.6, UPDATE, 7), (0.2, BLEND, 7))
    assert (found.place.line, found.place.function) == (7, "train")
    assert found.seconds == pytest.approx(0.8)


def test_a_call_before_the_backward_pass_is_not_apart(script):
    assert called(script, (0.6, UPDATE, 3)) is None


def test_a_function_that_makes_no_backward_pass_itself_has_no_end_of_a_step(script):
    lines = [line(0.6, (script, 13, "Average.update"), (script, 7, "train"), phase=Phase.HOST)]
    run = example(lines=lines).run
    among = costs(run, Phase.HOST)
    assert of_one_statement(run, hottest(among, among)) is None


def test_lines_of_one_statement_count_together(script):
    found = called(script, (0.3, UPDATE, 9), (0.4, UPDATE, 10))
    assert found.place.line == 10
    assert found.seconds == pytest.approx(0.7)


def test_a_function_that_two_statements_call_is_of_neither(script):
    assert called(script, (0.5, UPDATE, 7), (0.5, UPDATE, 9)) is None
    found = called(script, (0.9, UPDATE, 7), (0.1, UPDATE, 9))  # the class is one, whoever calls it
    assert (found.place.line, found.seconds) == (7, pytest.approx(1.0))
