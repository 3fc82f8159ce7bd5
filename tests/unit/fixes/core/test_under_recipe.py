"""What a process under a recipe says of its fixes, when something ends the saying."""

import json

import pytest
import torch

from flatout.fixes.core import under_recipe
from flatout.fixes.core.site import Site
from flatout.fixes.core.under_recipe import ACTS_FILE, UnderRecipe
from flatout.schema.order import Order
from flatout.schema.trial import Selection


@pytest.fixture
def training(tmp_path):
    made = UnderRecipe(Order(mode="run", folder=str(tmp_path), script="train.py"))
    made.sites = [Site(Selection("counts"), made.seams, made.modules)]
    made.sites[0].hit("SGD.step")
    return made


@pytest.fixture
def said(tmp_path):
    return lambda: [json.loads(line) for line in (tmp_path / ACTS_FILE).read_text().splitlines()]


def steps(training, number):
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    for _ in range(number):
        training._stepped(optimizer, (), {})


def test_after_twelve_steps_it_is_said_once(training, said):
    steps(training, 12)
    training.report()
    assert [words["steps"] for words in said()] == [12]


def test_how_many_they_were_is_said_at_the_end(training, said):
    steps(training, 40)
    training.report()
    assert [words["steps"] for words in said()] == [12, 40]
    training._forked()
    training.report()
    assert len(said()) == 2  # a child that has done nothing has nothing to say


def test_optimizers_that_step_in_turn_make_one_step_together(training, said):
    nets = [torch.nn.Linear(2, 1) for _ in range(3)]
    generator, critic, late = (torch.optim.SGD(net.parameters(), lr=0.1) for net in nets)
    for _ in range(10):
        training._stepped(generator, (), {})
        training._stepped(critic, (), {})
    for _ in range(5):
        for _ in range(4):
            training._stepped(critic, (), {})
        training._stepped(late, (), {})
    training.report()
    assert said()[-1]["steps"] == 10 + 5 * 4


def test_ranks_that_the_script_has_told_to_torch_alone_are_known(training, said, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    steps(training, 3)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)  # it is taken down before the end
    training.report()
    assert (said()[-1]["rank"], said()[-1]["world_size"]) == (1, 2)


@pytest.mark.parametrize("place", ["_software", "_append"])
def test_what_a_signal_s_handler_cuts_short_is_said_at_the_end(training, said, monkeypatch, place):
    def leave(*args):
        raise SystemExit(7)

    with monkeypatch.context() as patch:
        patch.setattr(under_recipe, place, leave)
        with pytest.raises(SystemExit):
            steps(training, 12)
    training.report()  # as `atexit` does
    assert [words["steps"] for words in said()] == [12]
