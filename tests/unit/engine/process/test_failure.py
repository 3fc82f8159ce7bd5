"""What is shown of a script's output where it failed."""

from flatout.engine.process.failure import shown_tail

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
