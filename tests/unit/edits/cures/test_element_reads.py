"""Elements that a loop reads one by one: plain numbers where they mean the same, and tensors where they may not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited

from flatout.edits.cures import element_reads

HEAD = "import torch\n"


def written(folder, text):
    return edited(folder, "element-writes", HEAD + text)


def run(text, *arguments):
    names = {}
    exec(HEAD + text, names)
    return names["f"](*arguments)


ALIKE = [
    """
def f(a, b):
    n = 0
    for t in a.view(-1):
        if t == 2 or t > -1:  # <<
            n += 1
    return n
""",
    """
def f(a, b):
    return sum(1 for x, y in zip(a.flatten(), b.flatten()) if x == y)  # <<
""",
    """
def f(a, b):
    return [int(x) for x in a.reshape(-1)]  # <<
""",
    """
def f(a, b):
    out = []
    for k, x in enumerate(a.view(-1)):
        out.append((k, x.item()))  # <<
    return out
""",
    """
def f(a, b):
    order = torch.argsort(a.view(-1))
    flat = b.view(-1)
    hits = 0
    for rank, j in enumerate(order, 1):
        if flat[j] == 1:  # <<
            hits += rank
    return hits
""",
    """
def f(a, b):
    m = torch.zeros(9, 9)
    for x, y in zip(a.view(-1), b.view(-1)):
        m[x, y] += 1  # <<
    return m.tolist()
""",
]


@pytest.mark.parametrize("text", ALIKE)
def test_what_means_the_same_is_read_as_numbers(tmp_path_factory, text):
    after, left = written(tmp_path_factory.mktemp("reads"), text)
    assert left == ""
    assert ".tolist()" in after.replace("m.tolist()", "")

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 8), min_size=1, max_size=12), st.randoms(use_true_random=False))
    def alike(numbers, chance):
        a = torch.tensor(numbers)
        b = torch.tensor([chance.randint(0, 8) for _ in numbers])
        assert run(text, a, b) == run(after, a, b)

    alike()


def test_what_may_be_a_list_is_asked_at_run_time(tmp_path):
    text = (
        "def f(a, b):\n    n = 0\n    for x, y in zip(a.view(-1), b):\n"
        "        if x == y:  # <<\n            n += 1\n    return n\n"
    )
    after, _ = written(tmp_path, text)
    assert "(b.tolist() if isinstance(b, torch.Tensor) else b)" in after
    a = torch.tensor([1, 2, 3])
    assert run(after, a, [1, 2, 4]) == run(after, a, torch.tensor([1, 2, 4])) == run(text, a, [1, 2, 4]) == 2


@pytest.mark.parametrize(
    "use",
    [
        "total += x",  # in float32
        "if x > 0.1: total += 1",  # a number that float32 does not have
        "seen[x] += 1",  # of a dictionary, by the tensor itself
        "total += f(x, 1)",
        "kept.append(x)",
        "if x == y: total += 1",
        "total += x == 1",
        "x += 1",
        "if torch.is_tensor(x): total += 1",
        "if x in seen: total += 1",
    ],
)
def test_what_may_differ_stays_a_tensor(tmp_path, use):
    after, left = written(tmp_path, f"def f(a, b):\n    for x in a.view(-1):  # <<\n        {use}\n    return total\n")
    assert after == ""
    assert "are not found" in left


def test_an_element_that_is_read_behind_the_loop_stays_a_tensor(tmp_path):
    after, _ = written(tmp_path, "def f(a):\n    for x in a.view(-1):  # <<\n        int(x)\n    return x\n")
    assert after == ""


def test_loops_over_lists_alone_are_no_reason_to_change_a_line(tmp_path):
    after, _ = written(tmp_path, "def f(a):\n    for x in a:\n        if x == 3:  # <<\n            break\n")
    assert after == ""
    assert element_reads.__all__ == ["as_numbers"]
