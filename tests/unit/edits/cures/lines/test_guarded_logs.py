"""Messages that a log does not take are not put together: the records are the same, and nothing else is left out."""

import logging

import pytest
import torch
from tests.unit.edits.scripts import edited

TRAINER = """\
import logging
import torch

log = logging.getLogger("{name}")


class Trainer:
    def __init__(self):
        self.model, self.turn = torch.nn.Linear(2, 1), 0

    def step(self, x, y):
        out = self.model(x)
        loss = (out - y).square().mean()
        loss.backward()
        self.turn += 1
        log.debug(f"turn {self.turn}: {tuple(x.shape)} {loss.item():.3f}")  # <<
        log.debug("grad\\n%s", self.model.weight.grad[:1])
        log.info(f"{loss.item() > 0.5 and 'high' or 'low'} {len(x)}")
        log.debug(f"{self.turn}"
                  f" {len(x)}")
        log.debug("plain %s", loss)


trainer = Trainer()
for _ in range(3):
    trainer.step(torch.ones(4, 2), torch.zeros(4, 1))
"""


def records(text, name, level, kind=logging.Logger):
    """Return the messages that a script's log takes at a level."""
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append((record.levelname, record.getMessage()))
    log = logging.getLogger(name)
    log.setLevel(level)
    log.addHandler(handler)
    log.propagate = False
    try:
        torch.manual_seed(0)
        exec(compile(text, "train.py", "exec"), {"__name__": "train"})
    finally:
        log.removeHandler(handler)
    return found


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING"])
def test_the_same_messages_come_at_every_level(tmp_path, level):
    text = TRAINER.replace("{name}", f"fields.{level}")
    after, left = edited(tmp_path, "log-level", text)
    assert left == ""
    assert after.count("isEnabledFor(logging.DEBUG)") == 2
    assert after.count("isEnabledFor(logging.INFO)") == 1
    wanted = records(text.replace("  # <<", ""), f"fields.{level}", level)
    assert records(after, f"fields.{level}", level) == wanted
    assert len(wanted) == {"DEBUG": 15, "INFO": 3, "WARNING": 0}[level]


def test_a_log_of_another_kind_is_given_every_message(tmp_path):
    text = """\
import logging
class Sheet:
    rows = []
    def debug(self, text):
        self.rows.append(text)
log = Sheet()
def step(x):
    log.debug(f"x is {x + 1}")  # <<
step(2)
rows = Sheet.rows
"""
    after, left = edited(
        tmp_path, "log-level", text.replace("def debug", "def write").replace("log.debug", "log.debug")
    )
    assert left == ""
    space = {}
    exec(after.replace("def write", "def debug"), space)
    assert space["rows"] == ["x is 3"]


METER = """
class Meter:
    def mean(self):
        return 1

    @property
    def rate(self):
        return 1
"""

LOUD = [
    ("{loss.item():.3f}", "{next(batches)}"),
    ("{loss.item():.3f}", "{torch.rand(1)}"),
    ("{loss.item():.3f}", "{self.model(x)}"),
    ("{loss.item():.3f}", "{loss.mul_(2)}"),
    ("{loss.item():.3f}", "{(kept := loss)}"),
    ("{loss.item():.3f}", "{seen[loss]}"),
    ("{loss.item():.3f}", "{list(x)}"),
    ("{loss.item():.3f}", "{self.meter.mean()}"),
    ("{tuple(x.shape)}", "{self.rate}"),
    ("{tuple(x.shape)}", "{self.turn in self.turns}"),
]


@pytest.mark.parametrize(("one", "other"), LOUD)
def test_what_may_do_more_than_make_a_text_stays_as_it_is(tmp_path, one, other):
    text = TRAINER.replace(one, other)
    assert text != TRAINER
    text += METER
    after, left = edited(tmp_path, "log-level", text)
    assert '        log.debug(f"turn {self.turn}: ' in after, left  # not indented
    assert after.count("isEnabledFor") == 2


@pytest.mark.parametrize(
    "more",
    [
        "\nclass Rows:\n    def __repr__(self):\n        return draw()\n",
        "\nclass Rows:\n    def __format__(self, spec):\n        return draw()\n",
        "\nfrom collections import defaultdict\n",
        "\nfrom torch.utils._python_dispatch import TorchDispatchMode\n",
        "\nclass Block(torch.nn.Module):\n    def extra_repr(self):\n        return draw()\n",
        "\nMeter = type('Meter', (), {'rate': property(draw)})\n",
        "\nwith Guard():\n    trainer.step(1, 2)\n",
        "\nimport threading\nthreading.Thread(target=trainer.step, args=(1, 2)).start()\n",
        "\ntry:\n    trainer.step(1, 2)\nexcept TypeError:\n    pass\n",
    ],
)
def test_projects_in_which_texts_may_do_more_are_left(tmp_path, more):
    after, left = edited(tmp_path, "log-level", TRAINER + more)
    assert (after, bool(left)) == ("", True)


LOOKED_AT = """\
import logging
import torch

notes = logging.getLogger("looked-at")


def look(rows, draws, i):
    notes.info(f"{i + 1}: {rows[0]} of {draws[0]}")  # <<
    notes.info(f"mean {rows.mean(0).shape[0]} {draws.sum()}")
"""


class Draws:
    """Elements that are drawn, as those of a data set whose transform is random."""

    given = 0

    def __getitem__(self, at):
        self.given += 1
        return self.given

    def sum(self):
        self.given += 1
        return self.given


def test_elements_and_methods_of_what_is_no_tensor_are_asked_for_as_before(tmp_path):
    after, left = edited(tmp_path, "log-level", LOOKED_AT)
    assert (left, after.count("isEnabledFor")) == ("", 2)
    for code in (LOOKED_AT, after):
        space, draws, rows = {}, Draws(), torch.ones(2, 3)
        exec(compile(code, "train.py", "exec"), space)
        space["notes"].setLevel("WARNING")
        space["look"](rows, draws, 0)
        assert draws.given == 2
        read = []
        rows.mean = lambda at, rows=rows, read=read: read.append(at) or torch.mean(rows, at)
        space["look"](rows, torch.ones(2), 0)
        assert read == ([0] if code is not after else [])
