"""Which functions act in an environment, by their source."""

import textwrap

import pytest

from flatout.rules.source.environments import acts
from flatout.schema.run import Frame


def found(tmp_path, text):
    path = tmp_path / "play.py"
    path.write_text(textwrap.dedent(text))
    return acts(Frame(str(path), 2, "play"))


@pytest.mark.parametrize(
    "text",
    [
        "def play(env):\n a = policy(obs)\n obs, reward, done, _ = env.step(a)",
        "def play(self):\n for _ in range(9):\n  obs, reward = self.world.step(act(obs))",
    ],
)
def test_a_step_that_is_given_an_action_and_gives_several_things_is_one(tmp_path, text):
    assert found(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "def play(opt):\n loss.backward()\n opt.step()",
        "def play(opt):\n loss = closure()\n loss = opt.step(closure)",
        "def play(s):\n s.step(loss)\n a, b = s.stage(1)",
    ],
)
def test_steps_of_optimizers_and_schedulers_are_none(tmp_path, text):
    assert not found(tmp_path, text)
