"""Conditions that come out the same at two places, whatever is called between them."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.steady_conditions import SteadyConditions

TEXT = """
EVERY = 50
class Config:
    every: int = 5
    def __init__(self):
        self.kept = 3
class Trainer:
    def __init__(self, every, other):
        self.every, self.step, self.log, self.seen = every, 0, 1, other
    def later(self):
        self.log = 2
    def train(self, loader, often, never, few=2, many: int = 3):
        args = parser.parse_args()
        config, thing = Config(), foreign()
        count, epoch, other, best = 0, 0, 0, loader[0]
        rows = []
        for i, (x, y) in tqdm(enumerate(loader)):
            while epoch < 3:
                metric = work(x)
                between(x, self, rows)
                {between}
                if {test}:
                    print(metric)
                epoch = epoch + 1
                count += 1
        rows.append(1)
Trainer(4, foreign()).train(data, 3, foreign())
"""


def is_steady(folder, test, between="pass"):
    source = (project := project_of(folder, train=TEXT.format(test=test, between=between))).script
    branch = next(node for node in ast.walk(source.tree) if isinstance(node, ast.If))
    block = source.parents[branch].body
    return SteadyConditions(project, source, block[: block.index(branch)]).is_steady(branch.test)


STEADY = (
    "i % 50 == 0", "i % EVERY == 0 and epoch > 1", "not count", "i == len(loader) - 1", "x is not None",
    "count in (1, 2)",
    "i % args.every == 0", "i % config.every == 0", "i % config.kept == 0", "self.step % self.every == 0",
    "i % often", "few", "many > 1", "i or True",
)  # fmt: skip


@pytest.mark.parametrize("test", STEADY)
def test_numbers_that_nobody_binds_between(tmp_path, test):
    assert is_steady(tmp_path, test)


MOVING = (
    "x.sum() > 0", "x > 0", "best > 1", "rows", "len(rows) % 2", "never", "thing.every", "self.log", "self.seen",
    "self.unknown", "work(i)", "loader.batch_size", "(i := 1)", "config", "unknown", "x[0]",
)  # fmt: skip


@pytest.mark.parametrize("test", MOVING)
def test_what_may_be_another_value_then(tmp_path, test):
    assert not is_steady(tmp_path, test)


@pytest.mark.parametrize(
    ("test", "between"),
    [
        ("count", "count += 1"),
        ("i % 2", "i = 3"),
        ("epoch", "for epoch in x: pass"),
        ("self.step % 2", "self.step += 1"),
        ("x is None", "x = None"),
        ("len(loader)", "loader = x"),
        ("args.every", "args = x"),
        ("other", "del other"),
    ],
)
def test_what_is_bound_between(tmp_path, test, between):
    assert is_steady(tmp_path, test)
    assert not is_steady(tmp_path, test, between)


@pytest.mark.parametrize("test", ["count", "few"])
def test_a_name_that_other_functions_bind(tmp_path, test):
    shared = f"def between(*x):\n                    nonlocal {test}\n                    {test} = 1"
    assert not is_steady(tmp_path, test, shared)
