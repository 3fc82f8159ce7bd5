"""Which loaders are for training: told by the loops that walk them, or recorded."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.training_loaders import Role, loader_calls
from flatout.schema.facts import Frame, LoaderFacts

HEAD = "from torch.utils.data import DataLoader\n"
TRAIN, TEST = "for x in {0}:\n    f(x).backward()\n", "for x in {0}:\n    f(x)\n"


def found(folder, text, recorded=()):
    return loader_calls(project_of(folder, train=HEAD + text), recorded)


def roles(folder, text, recorded=()):
    return [call.role for call in found(folder, text, recorded)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = DataLoader(d)\n" + TRAIN.format("a"), [Role.TRAINING]),
        ("a = DataLoader(d)\n" + TEST.format("a"), [Role.OTHER]),
        ("a = DataLoader(d)\n", [Role.TRAINING]),  # the only one
        ("a = DataLoader(d)\nb = DataLoader(e)\n", [Role.UNKNOWN, Role.UNKNOWN]),
        ("a = DataLoader(d)\nb = DataLoader(e)\n" + TRAIN.format("a") + TEST.format("b"), [Role.TRAINING, Role.OTHER]),
        ("a = DataLoader(d)\n" + TRAIN.format("a") + TEST.format("a"), [Role.TRAINING]),  # one that is looked at, too
        (
            "def make(d):\n    return DataLoader(d)\na = make(1)\nb = make(2)\n" + TRAIN.format("a") + TEST.format("b"),
            [Role.BOTH],
        ),
        ("a = DataLoader(d)\nwhile True:\n    f(next(iter(a))).backward()\n", [Role.TRAINING]),
    ],
)
def test_the_loops_tell_what_a_loader_is_for(tmp_path, text, expected):
    assert roles(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("walk", "straight"),
    [
        (TRAIN.format("a"), True),
        (TRAIN.format("enumerate(a)"), True),
        (TRAIN.format("zip(a, b)"), False),
        ("f(next(iter(a))).backward()\n", False),
        (TRAIN.format("a") + "x = next(iter(a))\n", False),
        ("", False),
    ],
)
def test_only_for_walks_a_loader_straight(tmp_path, walk, straight):
    assert found(tmp_path, "a = DataLoader(d)\n" + walk)[0].straight is straight


def recorded(folder, line, *, training, name="train.py"):
    return LoaderFacts(is_training=training, created_at=Frame(str(folder / name), line, "<module>"))


def test_a_recording_knows_better(tmp_path):
    text = "a = DataLoader(d)\nb = DataLoader(e)\n"
    facts = [recorded(tmp_path, 2, training=False), recorded(tmp_path, 3, training=True)]
    assert roles(tmp_path, text, facts) == [Role.OTHER, Role.TRAINING]
    assert roles(tmp_path, text, [*facts, recorded(tmp_path, 2, training=True)]) == [Role.BOTH, Role.TRAINING]
    assert roles(tmp_path, text, [recorded(tmp_path, 2, training=True, name="other.py")]) == [Role.UNKNOWN] * 2


def test_a_call_over_several_lines_is_met_on_each_of_them(tmp_path):
    text = "a = DataLoader(\n    d,\n)\nb = DataLoader(e)\n"
    assert roles(tmp_path, text, [recorded(tmp_path, 4, training=True)]) == [Role.TRAINING, Role.UNKNOWN]


def test_of_two_calls_on_one_line_a_recording_tells_nothing_that_loops_do_not(tmp_path):
    text = "a, b = DataLoader(d), DataLoader(e)\n" + TRAIN.format("a") + TEST.format("b")
    facts = [recorded(tmp_path, 2, training=True), recorded(tmp_path, 2, training=False)]
    assert roles(tmp_path, text, facts) == [Role.TRAINING, Role.OTHER]
