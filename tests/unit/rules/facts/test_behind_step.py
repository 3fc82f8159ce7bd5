"""What the loop does behind the optimizer's step is no batch of the next one: flatout.rules.facts.behind_step."""

import pytest

from flatout.rules import example, line
from flatout.rules.facts.behind_step import behind_step
from flatout.rules.facts.user_lines import costs
from flatout.rules.ho001_python_work_in_step import RULE as PYTHON_WORK
from flatout.rules.in008_hand_written_loader import RULE as HAND_WRITTEN
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, Frame

SCRIPT = """\
def batch_scores(out, y):
    return roc(out, y)  # scores
class Descent:
    def step(self):
        for p in self.parameters:
            p -= p.grad  # update
def fit():
    for epoch in range(9):
        for i in range(100):
            x, y = next_batch(i)  # make
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()  # step
            auc += batch_scores(out, y)  # call
def next_batch(i):
    return rows[i]  # rows
"""


@pytest.fixture
def at(tmp_path):
    """Return a function that gives the frame of a line by its comment."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)

    def frame(mark, function):
        number = next(n for n, text in enumerate(SCRIPT.splitlines(), 1) if text.endswith(f"# {mark}"))
        return str(path), number, function

    return frame


def stepping(at):
    return line(0.1, at("update", "Descent.step"), at("step", "fit"), phase=Phase.OPTIMIZER)


@pytest.mark.parametrize(
    ("phase", "given"), [(Phase.HOST, {"part": "lead"}), (Phase.INPUT, {"stage": "generator"})], ids=str
)
def test_a_metric_of_the_step_that_is_over_is_python_in_the_step_and_no_batch(at, phase, given):
    metric = line(1.0, at("scores", "batch_scores"), at("call", "fit"), phase=phase, **given)
    shares = {"host": 80} if phase is Phase.HOST else {"input": 80}
    truth = example(step_ms=100, forward=10, backward=10, **shares, lines=[metric, stepping(at)])
    assert behind_step(truth.run, costs(truth.run, phase)) == (metric,)
    assert HAND_WRITTEN.check(truth.run, truth.breakdown, ()) is None
    found = PYTHON_WORK.check(truth.run, truth.breakdown, ())
    assert found.phase is Phase.HOST
    assert found.share == pytest.approx(0.8)
    assert found.location in (Frame(*at("scores", "batch_scores")), Frame(*at("call", "fit")))


def test_a_batch_that_the_loop_makes_before_its_step_is_one(at):
    made = line(1.0, at("rows", "next_batch"), at("make", "fit"), stage="generator")
    truth = example(step_ms=100, input=80, forward=10, backward=10, lines=[made, stepping(at)])
    assert behind_step(truth.run, costs(truth.run, Phase.INPUT)) == ()
    assert HAND_WRITTEN.check(truth.run, truth.breakdown, ()).share == pytest.approx(0.8)
    assert PYTHON_WORK.check(truth.run, truth.breakdown, ()) is None


ACTS = """\
def returns(rewards):
    for t in range(len(rewards)):
        total += rewards[t]  # returns
def main():
    for update in range(100):
        for _ in range(16):
            action = policy(state)  # act
            state, reward, done = world.step(action)
        loss = learn(returns(rewards))  # learn
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("play_s", "share"), [(0.3, 0.56), (0.95, None)])
def test_what_is_made_of_rollouts_is_told_beside_them(tmp_path, play_s, share):
    path = tmp_path / "train.py"
    path.write_text(ACTS)
    act, learn = Frame(str(path), 7, "main"), Frame(str(path), 9, "main")
    collected = Collected(
        calls=1600, rows=51200, checked=4000, matched=4000, steps=100, steps_with_calls=100, acting=(act,),
        learning=(learn,),
    )  # fmt: skip
    lines = (
        line(play_s, (str(path), 7, "main"), stage="generator", leaf="torch"),
        line(1 - play_s, (str(path), 3, "returns"), (str(path), 9, "main"), stage="generator"),
    )
    causes = Causes(num_steps=100, lines=lines, collected=collected)
    truth = example(step_ms=100, input=80, forward=10, backward=10, causes=causes)
    found = HAND_WRITTEN.check(truth.run, truth.breakdown, ())
    if share is None:
        assert found is None
    else:
        assert found.share == pytest.approx(share)
        assert found.location.line in (3, 9)
