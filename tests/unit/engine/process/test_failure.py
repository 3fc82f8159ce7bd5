"""What is shown of a script's output where it failed."""

import pytest

from flatout.engine.process.failure import explain_nothing, shown_tail
from flatout.engine.process.launch import Outcome
from flatout.engine.process.target import Target
from flatout.rules import example
from flatout.schema.run import Utilization

RANKS = """\
starts
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "train.py", line 9, in <module>
[rank0]:   File "train.py", line 7, in <module>
[rank1]:     raise ValueError("bad label")
[rank0]:     loss.backward()
[rank0]: RuntimeError: Connection closed by peer
[rank1]: ValueError: bad label
Traceback (most recent call last):
  File "torchrun", line 7, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
"""


def shown(tmp_path, text, error=""):
    (tmp_path / "log").write_text(text)
    return shown_tail(tmp_path / "log", error=error).splitlines()


def test_of_several_ranks_the_traceback_of_the_first_error_is_shown(tmp_path):
    assert shown(tmp_path, RANKS, "ValueError: bad label") == [
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in <module>',
        '    raise ValueError("bad label")',
        "ValueError: bad label",
    ]


def test_without_a_known_error_the_last_traceback_is_shown(tmp_path):
    for error in ("", "KeyError: nowhere"):
        assert shown(tmp_path, RANKS, error)[-1] == "train.py FAILED"
    assert shown(tmp_path, "one\ntwo\n") == ["one", "two"]
    assert shown_tail(tmp_path / "none") == ""


def test_an_error_that_came_of_another_is_shown_as_python_shows_it(tmp_path):
    head = "Traceback (most recent call last):\n"
    text = f"{head}  a\nKeyError: 1\n\nDuring handling:\n\n{head}  b\nValueError: 2\nand more\n"
    assert shown(tmp_path, text, "ValueError: 2 and more")[-2:] == ["  b", "ValueError: 2"]


@pytest.mark.parametrize(("foreign", "said"), [(1.8, True), (0.1, False)])
def test_a_busy_machine_is_told_where_no_step_was_seen(tmp_path, foreign, said):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "python-1").touch()
    looks = tuple(Utilization(at_s=0.5 * i, foreign_cpu=foreign) for i in range(8))
    outcome = Outcome(stopped_by="budget", wall_s=198.0, utilization=looks)
    error = explain_nothing(Target("train.py", ("train.py",)), tmp_path, example(n=0).run, outcome)
    assert "made no optimizer step in 198 s" in str(error)
    assert ("Other programs used 1.8 cores meanwhile" in error.meaning) is said
