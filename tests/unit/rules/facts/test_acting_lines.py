"""Lines that collect what is learned from, inside the steps."""

from dataclasses import replace

import pytest

from flatout.rules.core.example import example, line
from flatout.rules.facts.acting_lines import acting_lines, mostly_acts
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, Frame

TEXT = """\
def train(policy, worlds, optimizer):
    for update in range(100):
        paths = []
        while len(paths) < 2048:
            with torch.no_grad():
                action = policy(worlds.seen())
            for world, each in zip(worlds.all, action):
                world.move(each)
            paths.append(worlds.seen())
        batch = torch.stack(paths)
        loss = policy.loss(batch)
        loss.backward()
        optimizer.step()
"""
ACTS, MOVES, APPENDS, STACKS, LEARNS = 6, 8, 9, 10, 11


@pytest.fixture
def seen(tmp_path):
    """Return a function that makes a run of samples at some lines, of which the model acts at some."""
    path = str(tmp_path / "act.py")
    (tmp_path / "act.py").write_text(TEXT)

    def made(*lines, acting=(ACTS,), matched=900):
        frames = [tuple(Frame(path, number, "train") for number in numbers) for numbers in (acting, (LEARNS,))]
        found = Collected(
            calls=500, rows=8000, checked=1000, matched=matched, steps=50, steps_with_calls=50,
            acting=frames[0], learning=frames[1],
        )  # fmt: skip
        costs = tuple(line(seconds, (path, at, "train"), phase=Phase.INPUT, samples=20) for at, seconds in lines)
        return replace(example().run, causes=Causes(lines=costs, num_steps=50, collected=found))

    return made


def lines_of(run):
    return [cost.stack[0].line for cost in acting_lines(run)]


def test_all_of_the_loop_in_which_the_model_acts_is_acting(seen):
    run = seen((ACTS, 0.2), (MOVES, 1.0), (APPENDS, 0.3), (STACKS, 0.4))
    assert lines_of(run) == [ACTS, MOVES, APPENDS]
    assert mostly_acts(run)


def test_what_makes_the_batch_of_it_is_none(seen):
    run = seen((MOVES, 0.3), (STACKS, 1.4))
    assert lines_of(run) == [MOVES]
    assert not mostly_acts(run)


def test_a_model_that_is_not_trained_on_what_it_saw_does_not_act(seen):
    assert not lines_of(seen((MOVES, 1.0), matched=100))
    assert not lines_of(seen((MOVES, 1.0), acting=()))
