"""What a command line is known by."""

import pytest

from flatout.engine.process.target import Target, arguments_digests


def digests(*words):
    return arguments_digests(Target("train.py", ("python", "train.py", *words)))


@pytest.mark.parametrize(
    ("words", "same", "but_for_the_length"),
    [
        (("--lr", "1", "--epochs", "3"), True, True),
        (("--lr", "1", "--epochs", "90"), False, True),
        (("--lr", "1", "--epochs=90"), False, True),
        (("--lr", "1"), False, True),
        (("--lr", "1", "--max_steps", "8"), False, True),
        (("--lr", "2", "--epochs", "3"), False, False),
        (("--epochs", "3", "data"), False, False),
        (("--epochs", "--lr", "1"), False, True),
    ],
)
def test_arguments_are_told_apart_and_those_that_say_how_long_left_out(words, same, but_for_the_length):
    arguments, others = digests("--lr", "1", "--epochs", "3")
    assert (digests(*words)[0] == arguments) is same
    assert (digests(*words)[1] == others) is but_for_the_length


def test_of_a_module_and_a_launcher_the_words_behind_its_name_count():
    module = Target("pkg.train", ("python", "-m", "pkg.train", "--lr", "1"))
    launched = Target("train.py", ("torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"))
    assert arguments_digests(module) == arguments_digests(launched) == digests("--lr", "1")
