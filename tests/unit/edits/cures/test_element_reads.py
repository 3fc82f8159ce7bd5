"""Elements that a loop reads one by one: plain numbers where they mean the same, and tensors where they may not."""

import ast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.cures.elements.running import HEAD, edited_elements, is_edited_alike

from flatout.edits.cures import element_reads


def run(text, *arguments):
    names = {}
    exec(text.replace("  # <<", ""), names)
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
        if x == 8:
            continue
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
]


@pytest.mark.parametrize("text", ALIKE)
def test_what_means_the_same_is_read_as_numbers(tmp_path_factory, text):
    after, left = edited_elements(tmp_path_factory.mktemp("reads"), text)
    assert left == ""
    assert ".numpy()\n" in after

    @settings(max_examples=30)
    @given(
        st.lists(st.integers(0, 8), min_size=1, max_size=12),
        st.randoms(use_true_random=False),
        st.sampled_from([torch.int64, torch.int64, torch.int32, torch.float32]),
    )
    def alike(numbers, chance, dtype):
        a = torch.tensor(numbers)
        b = torch.tensor([chance.randint(0, 8) for _ in numbers], dtype=dtype)
        assert tried(HEAD + text, a, b) == tried(after, a, b)

    alike()


def tried(text, *arguments):
    try:
        return run(text, *arguments)
    except (IndexError, TypeError) as error:  # what no tensor is indexed by
        return type(error)


def test_what_may_be_a_list_is_asked_at_run_time(tmp_path):
    text = (
        "def f(a, b):\n    n = 0\n    for x, y in zip(a.view(-1), b):\n"
        "        if x == y:  # <<\n            n += 1\n    return n\n"
    )
    after, _ = edited_elements(tmp_path, text)
    assert "    for each in (elements_of_a, numbers_of_b)\n" in after
    a = torch.tensor([1, 2, 3])
    assert run(after, a, [1, 2, 4]) == run(after, a, torch.tensor([1, 2, 4])) == run(HEAD + text, a, [1, 2, 4]) == 2


PLAIN = """
def f(a, b):
    n = 0
    for x, y in zip(a.view(-1), b):
        if x {} y:  # <<
            n += 1
    return n
print(f({}, {}))
"""
PAIRS = {
    "float32 and Python's own": (">=", "torch.tensor([0.7, 0.1])", "[0.7, 0.1]"),
    "float32 and float64 of NumPy's": ("==", "torch.tensor([0.7, 0.1])", "np.array([0.7, 0.1])"),
    "float32 and bfloat16": ("==", "torch.tensor([0.7, 0.1])", "torch.tensor([0.7, 0.1], dtype=torch.bfloat16)"),
    "float32 and float16": (">", "torch.tensor([0.7, 0.1])", "torch.tensor([0.7, 0.1], dtype=torch.float16)"),
    "int64 and uint8": ("==", "torch.tensor([-1, 256])", "torch.tensor([255, 0], dtype=torch.uint8)"),
    "int64 and float32": ("==", "torch.tensor([16777217])", "torch.tensor([16777216.0])"),
    "int64 and fractions": ("==", "torch.tensor([1, 3])", "[__import__('fractions').Fraction(1)]"),
    "int64 and int64": ("!=", "torch.tensor([1, 3, 4])", "torch.tensor([3, 1, 4])"),
    "rows": ("==", "torch.tensor([1, 3, 4])", "torch.tensor([[3], [1], [4]])"),
    "what is trained": ("==", "torch.ones(3, requires_grad=True)", "torch.ones(3)"),
    "sparse": ("==", "torch.ones(3, dtype=torch.int64)", "torch.ones(3, dtype=torch.int64).to_sparse()"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_all_that_is_compared_becomes_numbers_or_nothing_does(tmp_path, name):
    assert is_edited_alike(tmp_path, PLAIN.format(*PAIRS[name]))


@pytest.mark.parametrize(
    "use",
    [
        "total += x",  # in float32
        "if x > 20_000_000: total += 1",  # float32 may not have it
        "kept.append(x.item())",  # of a list of arrays, what is read as before has to have it
        "if x > 0.1: total += 1",
        "seen[x] += 1",  # of a dictionary, by the tensor itself
        "total += f(x, 1)",
        "kept.append(x)",
        "if x == y: total += 1",
        "if x is y: total += 1",
        "total += x == 1",
        "x += 1",
        "if torch.is_tensor(x): total += 1",
        "if x in seen: total += 1",
        "change(); total += int(x)",  # may write to the tensor first
        "k = board.turn; total += int(x)",
        "k = ring[0]; total += int(x)",
        "kept[0] += 1; total += int(x)",
        "row += 1; total += int(x)",  # may be a row of the tensor
        "kept.append(lambda: int(x))",
    ],
)
def test_what_may_differ_stays_a_tensor(tmp_path, use):
    text = f"def f(a, b, kept, seen, row):\n    for x in a.view(-1):  # <<\n        {use}\n    return total\n"
    after, left = edited_elements(tmp_path, text)
    assert after == ""
    assert "are not found" in left


HEADS = {
    "walked behind": ("for t, k in zip(a.view(-1), changing(a)):", False),
    "walked before": ("for k, t in zip(changing(a), a.view(-1)):", False),  # made before the other is
    "walked before, by its name": ("for k, t in zip(names, a.view(-1)):", True),
    "counted": ("for k, t in enumerate(a.view(-1), 1):", True),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_loops_that_run_other_code_after_an_element_is_read(tmp_path, name):
    head, is_edited = HEADS[name]
    text = f"""
def changing(a):
    for k in range(3):
        a.add_(1)
        yield k
def f(a, names):
    out = []
    {head}
        out.append(int(t))  # <<
    return out
a = torch.zeros(3, dtype=torch.int64)
print(f(a, changing(a)))
"""
    assert is_edited_alike(tmp_path, text) == is_edited


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
    after, left = edited_elements(tmp_path, text)
    assert left == ""
    over = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert run(after, over, None) == run(HEAD + text, over, None) == [0, 2]


AS_INDEX = """
class Table:
    def __getitem__(self, i):
        return i.item() * 2
class Shifted(torch.Tensor):
    def __getitem__(self, i):
        return torch.Tensor.__getitem__(self, (int(i) + 1) % 3)
def f(a, table):
    out = []
    for x in a.view(-1):
        out.append(table[x])  # <<
    return [each.item() if hasattr(each, "item") else each for each in out]
print(f({}, {}))
"""
TABLES = {
    "a tensor": ("torch.tensor([2, 0, -1])", "torch.tensor([5.0, 6.0, 7.0])"),
    "a list": ("torch.tensor([2, 0, -1])", "[5, 6, 7]"),
    "a dictionary by its numbers": ("torch.tensor([2, 0])", "{2: 5, 0: 6}"),
    "a dictionary with others": ("torch.tensor([2, 0])", "__import__('collections').defaultdict(int, {2: 5})"),
    "a table of the user's": ("torch.tensor([2, 0])", "Table()"),
    "a tensor of the user's": ("torch.tensor([2, 0])", "torch.arange(3).as_subclass(Shifted)"),
    "by bytes": ("torch.tensor([1, 1, 0], dtype=torch.uint8)", "torch.tensor([5.0, 6.0, 7.0])"),
    "by numbers with a fraction": ("torch.tensor([1.0, 0.0])", "torch.tensor([5.0, 6.0, 7.0])"),
    "out of range": ("torch.tensor([2, 0])", "torch.tensor([5.0])"),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_elements_are_an_index_of_is_asked_at_run_time(tmp_path, name):
    assert is_edited_alike(tmp_path, AS_INDEX.format(*TABLES[name]))


def test_an_element_that_is_read_behind_the_loop_stays_a_tensor(tmp_path):
    after, _ = edited_elements(tmp_path, "def f(a):\n    for x in a.view(-1):  # <<\n        int(x)\n    return x\n")
    assert after == ""


def test_loops_over_lists_alone_are_no_reason_to_change_a_line(tmp_path):
    after, _ = edited_elements(tmp_path, "def f(a):\n    for x in a:\n        if x == 3:  # <<\n            break\n")
    assert after == ""
    assert not element_reads.is_flat(ast.parse("a.view(2, -1)", mode="eval").body)


def test_a_function_of_the_user_s_with_the_name_of_python_s_own_is_another_one(tmp_path):
    text = "def int(x):\n    return x\n\n\ndef f(a, b):\n    return [int(x) for x in torch.argsort(a)]  # <<\n"
    after, _ = edited_elements(tmp_path, text)
    assert after == ""
