"""Batches that a script makes itself are told from acting in an environment."""

from dataclasses import replace

from flatout.rules.core.example import example, line
from flatout.rules.facts.manual_loading import batch_making
from flatout.schema.run import Causes

LOOP = """\
def learn(agent, world, memory):
    seen = world.reset()
    while True:
        action = agent.act(seen)
        seen, reward, done, _ = world.step(action)
        memory.add(seen, action, reward, done)
        agent.update(memory.sample(64))
"""


def making(tmp_path, *stacks):
    path = tmp_path / "learn.py"
    path.write_text(LOOP)
    loop = [(str(path), number, "learn") for number in range(len(LOOP.splitlines()) + 1)]
    costs = [
        line(1.0, *(loop[each] if isinstance(each, int) else each for each in stack), stage="generator")
        for stack in stacks
    ]
    run = replace(example().run, causes=Causes(lines=tuple(costs), num_steps=40))
    return [cost.stack[0].line for cost in batch_making(run)]


def test_a_replay_buffer_below_the_loop_that_acts_makes_batches(tmp_path):
    sample = ("memory.py", 30, "Memory.sample")
    assert making(tmp_path, (sample, 7)) == [30]


def test_the_world_and_the_line_that_steps_it_do_not(tmp_path):
    assert making(tmp_path, (("world.py", 12, "World.step"), 5), (5,)) == []
