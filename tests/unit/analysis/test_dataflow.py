"""Which statements make what another one needs."""

import pytest

from flatout.analysis.dataflow import feeds, feeds_result


def judged(tmp_path, source, goal="GOAL", subject="SUBJECT"):
    """Say whether the line marked SUBJECT feeds those marked GOAL."""
    file = tmp_path / f"case{abs(hash(source))}.py"
    file.write_text(source)
    numbered = list(enumerate(source.splitlines(), 1))
    goals = frozenset(number for number, line in numbered if goal in line)
    return feeds(str(file), next(number for number, line in numbered if subject in line), goals)


@pytest.mark.parametrize(
    "source",
    [
        "x = load()  # SUBJECT\nstep(x)  # GOAL\n",
        "a = load()  # SUBJECT\nb = scale(a)\nc = b + 1\nstep(c)  # GOAL\n",
        "rows = []\nrows.append(load())  # SUBJECT\nstep(stack(rows))  # GOAL\n",
        "rows = {}\nrows['x'] = load()  # SUBJECT\nstep(rows)  # GOAL\n",
        "for x in load():  # SUBJECT\n    step(x)  # GOAL\n",
        "with load() as x:  # SUBJECT\n    step(x)  # GOAL\n",
        "x, y = load()  # SUBJECT\nstep(y)  # GOAL\n",
        "x: int = load()  # SUBJECT\nstep(x)  # GOAL\n",
        "step(x)  # GOAL\nx = load()  # SUBJECT\n",
        "total = 0\ntotal += load()  # SUBJECT\nstep(total)  # GOAL\n",
        "self.x = load()  # SUBJECT\nstep(self.x)  # GOAL\n",
        "if (x := load()):  # SUBJECT\n    step(x)  # GOAL\n",
        "x = load(\n    1,  # SUBJECT\n)\nstep(x)  # GOAL\n",
        "try:\n    x = load()  # SUBJECT\nfinally:\n    pass\nstep(x)  # GOAL\n",
        "def f():\n    x = load()  # SUBJECT\n    step(x)  # GOAL\n",
        "async def f():\n    async for x in load():  # SUBJECT\n        step(x)  # GOAL\n",
        "class A:\n    def f(self):\n        x = load()  # SUBJECT\n        step(x)  # GOAL\n",
        "buffer.copy_(load())  # SUBJECT\nstep(buffer)  # GOAL\n",
    ],
)
def test_what_makes_a_value_feeds_what_needs_it(tmp_path, source):
    assert judged(tmp_path, source)


@pytest.mark.parametrize(
    "source",
    [
        "x = load()\nprint(x)  # SUBJECT\nstep(x)  # GOAL\n",
        "x = load()\ny = note(x)  # SUBJECT\nstep(x)  # GOAL\n",
        "log.write(load())  # SUBJECT\nstep(x)  # GOAL\n",
        "def g():\n    x = load()  # SUBJECT\n\ndef f(x):\n    step(x)  # GOAL\n",
        "if ready():  # SUBJECT\n    step(x)  # GOAL\n",
        "for _ in range(3):\n    time.sleep(1)  # SUBJECT\n    step(x)  # GOAL\n",
        "history.append(x)  # SUBJECT\nstep(x)  # GOAL\n",
    ],
)
def test_what_only_uses_it_does_not(tmp_path, source):
    assert not judged(tmp_path, source)


@pytest.mark.parametrize("source", ["", "def broken(:\n", "\x00"])
def test_a_source_that_cannot_be_read_feeds_nothing(tmp_path, source):
    file = tmp_path / "broken.py"
    file.write_text(source)
    assert not feeds(str(file), 1, frozenset({1}))
    assert not feeds(str(tmp_path / "absent.py"), 1, frozenset({1}))


def test_lines_that_are_not_there(tmp_path):
    file = tmp_path / "short.py"
    file.write_text("x = 1\nstep(x)\n")
    assert not feeds(str(file), 99, frozenset({2}))
    assert not feeds(str(file), 1, frozenset({99}))


RESULTS = """\
def training_step(self, batch):
    out = self.net(batch)
    loss = criterion(out)
    accuracy = (out.argmax(1) == batch.y).mean()
    self.log("accuracy", accuracy)
    self.losses = loss.item()
    return loss

def update(self, batch):
    self.seen.append(batch)
    score(batch)
"""


@pytest.mark.parametrize(("line", "expected"), [(2, True), (3, True), (4, False), (5, False), (6, True), (7, True)])
def test_what_a_function_returns_is_told_from_what_it_writes_down(tmp_path, line, expected):
    file = tmp_path / "module.py"
    file.write_text(RESULTS)
    assert feeds_result(str(file), line) == expected


def test_where_a_function_returns_nothing_every_line_may_be_needed(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(RESULTS)
    assert feeds_result(str(file), 11)
    assert feeds_result(str(tmp_path / "gone.py"), 3)
