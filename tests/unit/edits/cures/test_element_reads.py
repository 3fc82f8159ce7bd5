"""Elements that a loop reads one by one: plain numbers where they mean the same, and tensors where they may not."""

import ast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited

from flatout.edits.cures import element_reads, item_reads

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
    n = 0
    for k, (x, y) in enumerate(zip(a.flatten(), b.view(-1))):
        if x == y and not x == 3:  # <<
            n += k
    return n
""",
    """
def f(a, b):
    order = torch.argsort(a)
    return [int(x) for x in order] + [int(b[i]) for i in range(len(b))]  # <<
""",
    """
def f(a, b):
    out = []
    for k, x in enumerate(a.view(-1)):
        out.append((k, float(x)))  # <<
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
    """
def f(a, b):
    right, count = 0, [0] * 9
    for i in range(len(a)):
        if a[i] == b[i]:  # <<
            right += 1
            count[int(a[i])] += 1
    return right, sum(1 for i in range(len(a)) if int(b[i]) > 3 and a[i] != b[-1 - i])
""",
    """
def f(a, b):
    found = []
    for label in b:
        order = torch.argsort(a)
        hits = 0
        for rank, j in enumerate(order, 1):
            if a[j] == label:  # <<
                hits += 1
                found.append(hits / rank)
    return found
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
    assert "(b.tolist() if isinstance(b, torch.Tensor) and b.dim() == 1 and b.dtype in (torch.int64" in after
    a = torch.tensor([1, 2, 3])
    assert run(after, a, [1, 2, 4]) == run(after, a, torch.tensor([1, 2, 4])) == run(text, a, [1, 2, 4]) == 2


def test_bytes_and_rows_stay_tensors(tmp_path):
    text = "def f(a, b):\n    for x in a.view(-1):\n        if x == -1:  # <<\n            return 1\n    return 0\n"
    after, _ = written(tmp_path, text)
    masks = torch.tensor([255, 1], dtype=torch.uint8)
    assert run(after, masks, None) == run(text, masks, None) == 1
    text = "def f(a, b):\n    return [float(a[i]) for i in range(2)]  # <<\n"
    after, _ = written(tmp_path, text)
    column = torch.ones(2, 1)
    assert run(after, column, None) == run(text, column, None) == [1.0, 1.0]


SEEN = """
def f(over, b):
    gone = torch.zeros(len(over), dtype=torch.int64)
    kept = []
    for i, dead in enumerate(gone):
        if int(dead):
            continue
        kept.append(i)
        for j in range(i + 1, len(over)):
            if over[i][j] > 0:
                gone[j] = 1  # <<
    return kept
"""
ALIAS = SEEN.replace(
    "    kept = []\n    for i, dead in enumerate(gone):\n        if int(dead):",
    """    flat = gone.view(-1)
    kept = []
    for i in range(len(over)):
        if int(flat[i]):""",
)


@pytest.mark.parametrize("text", [SEEN, ALIAS])
def test_what_a_turn_writes_is_seen_by_the_next(tmp_path, text):
    after, _ = written(tmp_path, text)
    over = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert run(after or text, over, None) == run(text, over, None) == [0, 2]


@pytest.mark.parametrize(
    "use",
    [
        "total += x",  # in float32
        "if x > 20_000_000: total += 1",  # float32 may not have it
        "kept.append(x.item())",  # of a list of arrays, what is read as before has to have it
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


def test_items_of_lists_and_tables_are_read_as_before(tmp_path):
    text = """
def f(a, b):
    n = 0
    for i in range(2):
        if a[i] == b[i]:  # <<
            n += 1
    return n
"""
    after, _ = written(tmp_path, text)
    assert "numbers_of_a = a.tolist() if isinstance(a, torch.Tensor) and a.dim() == 1 and a.dtype in" in after
    for a, b in (([1, 2], [1, 3]), (torch.tensor([1, 2]), [1, 3]), ({0: 1, 1: 2}, {0: 1, 1: 2})):
        assert run(after, a, b) == run(text, a, b)
    with pytest.raises(RuntimeError, match="ambiguous"):
        run(after, torch.eye(2), torch.eye(2))


@pytest.mark.parametrize(
    "turn",
    [
        "a[i] = 0",
        "a.zero_()",
        "change()",
        "self.step()",
        "a = a + 1",
        "c = a[1:]\n        c += 1",
        "b[i] = 1",  # may be the same memory
        "held.values[i] = 1",
        "a += 1",
        "yield i",
        "n += a[i]",
        "seen.append(a[i])",
    ],
)
def test_items_of_what_a_turn_may_change_stay_tensors(tmp_path, turn):
    text = f"def f(a, b):\n    for i in range(2):\n        {turn}\n        if a[i] == 3:  # <<\n            print(i)\n"
    after, _ = written(tmp_path, text)
    assert after == "" or turn == "seen.append(a[i])"


def test_an_element_that_is_read_behind_the_loop_stays_a_tensor(tmp_path):
    after, _ = written(tmp_path, "def f(a):\n    for x in a.view(-1):  # <<\n        int(x)\n    return x\n")
    assert after == ""


def test_loops_over_lists_alone_are_no_reason_to_change_a_line(tmp_path):
    after, _ = written(tmp_path, "def f(a):\n    for x in a:\n        if x == 3:  # <<\n            break\n")
    assert after == ""
    assert not element_reads._is_flat(ast.parse("a.view(2, -1)", mode="eval").body)
    assert item_reads.is_plain_tensor("torch", "a", "a").startswith("isinstance(a, torch.Tensor) and a.dim() == 1")


MY_METHOD = """
class Seen:
    def add(self, table):
        table[0] = 3


def f(a, seen):
    found = []
    for i in range(len(a)):
        seen.add(a)
        if a[i] == 3:  # <<
            found.append(i)
    return found
"""


def test_a_method_of_the_user_s_may_do_anything_whatever_its_name(tmp_path):
    after, _ = written(tmp_path, MY_METHOD)
    assert after == ""
    after, _ = written(tmp_path, MY_METHOD.replace("seen.add(a)", "seen.append(i)"))
    assert "numbers_of_a[i] == 3" in after


def test_a_function_of_the_user_s_with_the_name_of_python_s_own_is_another_one(tmp_path):
    text = "def int(x):\n    return x\n\n\ndef f(a, b):\n    return [int(x) for x in torch.argsort(a)]  # <<\n"
    after, _ = written(tmp_path, text)
    assert after == ""
