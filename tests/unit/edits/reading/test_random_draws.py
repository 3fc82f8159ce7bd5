"""Whether samples are random, as far as the source tells."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.random_draws import is_of_workers, made_randomly

ROWS = "class Rows:\n    def __init__(self):\n        {}\n    def __getitem__(self, i):\n        {}\n"


def said(folder, text):
    return made_randomly(project_of(folder, train=text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ROWS.format("pass", "return i"), ""),
        (ROWS.format("torch.rand(3)", "return i"), ""),  # once
        (ROWS.format("pass", "return torch.randn(3)"), "train.py:5: randn is called where samples are made"),
        (ROWS.format("pass", "return self.rng.x"), "train.py:5: rng is called where samples are made"),
        (ROWS.format("pass", "return jitter(i)") + "def jitter(x):\n    return choice(x)\n", "train.py:7: choice is"),
        (ROWS.format("pass", "return i") + "def jitter(x):\n    return choice(x)\n", ""),
        ("t = Compose([RandomCrop(3)])\n", "train.py:1: RandomCrop draws random numbers"),
        ("t = Compose([CenterCrop(3)])\n", ""),
        ("s = RandomSampler(rows)\n", ""),
        ("import RandomCrop\nx = RandomCrop\n", ""),  # not made
        ("class S(IterableDataset):\n    pass\n", "train.py:1: S is an iterable data set"),
        ("def join(rows):\n    shuffle(rows)\nDataLoader(x, collate_fn=join)\n", "train.py:2: shuffle is called"),
        ("def join(rows):\n    shuffle(rows)\nDataLoader(x)\n", ""),
        ("def change(x):\n    return x\nRows(transform=self.change)\n", ""),
    ],
)
def test_what_draws_where_samples_are_made(tmp_path, text, reason):
    found = said(tmp_path, text)
    assert found.startswith(reason) if reason else found == ""


def test_functions_that_call_each_other_are_read_once(tmp_path):
    text = ROWS.format("pass", "return a(i)") + "def a(x):\n    return b(x)\ndef b(x):\n    return a(x)\n"
    assert said(tmp_path, text) == ""


def test_code_of_workers_is_told_from_that_of_the_training(tmp_path):
    text = ROWS.format("pass", "here()") + "def start(n):\n    here()\ndef other():\n    here()\n"
    project = project_of(tmp_path, train=text + "DataLoader(x, worker_init_fn=start)\nhere()\n")
    calls = sorted(project.calls(), key=str) or [
        (source, call) for source, call in project.nodes(ast.Call) if ast.unparse(call) == "here()"
    ]
    found = {call.lineno: is_of_workers(project, source, call) for source, call in calls}
    assert found == {5: True, 7: True, 9: False, 11: False}
