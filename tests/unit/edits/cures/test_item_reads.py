"""Items that a loop reads by their numbers: of an array that shows what the tensor does, or as before."""

import ast

import pytest
import torch
from tests.unit.edits.cures.elements.running import HEAD, edited_elements, is_edited_alike
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.elements.function_loops import LoopsOf
from flatout.edits.cures.item_reads import is_of_torch, items_in_loops


def run(text, *arguments):
    names = {}
    exec(text.replace("  # <<", ""), names)
    return names["f"](*arguments)


def test_items_of_lists_and_tables_are_read_as_before(tmp_path):
    text = """
def f(a, b):
    n = 0
    for i in range(2):
        if a[i] == b[i]:  # <<
            n += 1
    return n
"""
    after, _ = edited_elements(tmp_path, text)
    assert "    numbers_of_a = a\n    numbers_of_b = b\n    if all(\n" in after
    for a, b in (([1, 2], [1, 3]), (torch.tensor([1, 2]), [1, 3]), ({0: 1, 1: 2}, {0: 1, 1: 2})):
        assert run(after, a, b) == run(HEAD + text, a, b)
    with pytest.raises(RuntimeError, match="ambiguous"):
        run(after, torch.eye(2), torch.eye(2))
    column = torch.ones(2, 1, dtype=torch.int64)
    assert run(after, column, column) == run(HEAD + text, column, column) == 2


@pytest.mark.parametrize(
    "turn",
    [
        "a = a + 1",
        "a, n = n, a",
        "a += 1",
        "del a",
        "with n as a: pass",
        "import torch as a",
        "keep(a)",
        "a.data = n",
        "a.resize_(9)",
    ],
)
def test_items_of_a_name_that_may_be_another_tensor_meanwhile_stay_tensors(tmp_path, turn):
    text = f"def f(a, n):\n    for i in range(2):\n        {turn}\n        if a[i] == 3:  # <<\n            print(i)\n"
    after, _ = edited_elements(tmp_path, text)
    assert after == ""
    assert edited_elements(tmp_path, text.replace(turn, "n = i"))[0]


@pytest.mark.parametrize("turn", ["print(lambda: int(a[i]))", "print(int(a[i]) for k in range(3))"])
def test_what_runs_later_reads_the_tensor(tmp_path, turn):
    text = f"def f(a, n):\n    for i in range(2):\n        {turn}\n        if a[i] == 3:  # <<\n            print(i)\n"
    after, _ = edited_elements(tmp_path, text)
    assert turn in after and "numbers_of_a[i] == 3" in after


SCRIPTS = {
    "a place that is found by the user's code, behind another item": (
        False,
        """
class Word:
    def __len__(self):
        A.add_(1)
        return 0
def f(a, b, word):
    n = 0
    for i in range(2):
        if a[i] == b[len(word)]:  # <<
            n += 1
    return n
A = torch.zeros(2, dtype=torch.int64)
print(f(A, torch.tensor([0, 1]), Word()))
""",
    ),
    "a generator that is kept": (
        False,
        """
def f(a):
    kept = (int(a[i]) for i in range(3))  # <<
    a.add_(1)
    return list(kept)
print(f(torch.zeros(3, dtype=torch.int64)))
""",
    ),
    "a generator that is kept, of elements": (
        False,
        """
def f(n):
    order = torch.arange(n)
    return order, (int(x) for x in order)  # <<
order, kept = f(3)
order.add_(10)
print(list(kept))
""",
    ),
    "a generator that is summed": (
        True,
        """
def f(a):
    return sum(int(a[i]) for i in range(3))  # <<
print(f(torch.arange(3)))
""",
    ),
    "written by another name": (
        True,
        """
class Marks:
    def __init__(self):
        self.seen = torch.zeros(4, dtype=torch.int64)
    def walk(self, other):
        out = []
        for i in range(4):
            if int(other[i]):  # <<
                out.append(i)
            self.seen[(i + 1) % 4] = 1
        return out
m = Marks()
print(m.walk(m.seen))
""",
    ),
    "written by an iterator": (
        True,
        """
def batches(buffer):
    for k in range(2):
        buffer.fill_(k)
        yield k
def f(stream, buffer):
    out = []
    for k in stream:
        for i in range(2):
            out.append(int(buffer[i]))  # <<
    return out
buffer = torch.zeros(2, dtype=torch.int64)
print(f(batches(buffer), buffer))
""",
    ),
    "written by a property": (
        True,
        """
class Game:
    def __init__(self, board):
        self.board = board
    @property
    def turn(self):
        self.board.add_(1)
def f(game, board):
    out = []
    for i in range(3):
        k = game.turn
        out.append(int(board[i]))  # <<
    return out
board = torch.zeros(3, dtype=torch.int64)
print(f(Game(board), board))
""",
    ),
    "places that are arrays": (
        False,
        """
def f(labels, mask):
    n = 0
    for i in np.argwhere(mask):
        n = n + int(labels[i])  # <<
    return n
print(f(torch.tensor([1, 3, 1]), np.array([True, False, True])))
""",
    ),
    "places that are masks": (
        True,
        """
def f(a, places):
    out = []
    for i in places:
        out.append(int(a[i]))  # <<
    return out
print(f(torch.tensor([7]), [True]))
print(f(torch.tensor([7, 8]), torch.tensor([1, 0])))
""",
    ),
    "bound behind a loop without turns": (
        False,
        """
def f(n):
    for i in range(n):
        print(int(order[i]))  # <<
    order = torch.argsort(torch.ones(3))
    return order
print(f(0).shape)
""",
    ),
    "bound by a pattern": (
        False,
        """
def f(a, things):
    out = []
    for i, thing in enumerate(things):
        match thing:
            case ("use", a):
                pass
        out.append(int(a[i]))  # <<
    return out
print(f(torch.tensor([1, 2]), [0, ("use", torch.tensor([7, 8]))]))
""",
    ),
    "an elif": (
        False,
        """
def f(a, c):
    if c:
        pass
    elif any([int(a[i]) == 1 for i in range(3)]):  # <<
        return "one"
    return "none"
print(f(torch.ones(3, dtype=torch.int64), False))
""",
    ),
    "an f-string": (
        False,
        """
def f(a):
    out = []
    for i in range(2):
        out.append(f"{int(a[i])}")  # <<
    return out
print(f(torch.tensor([1, 2])))
""",
    ),
    "a class of the user's": (
        True,
        """
class Shifted(torch.Tensor):
    def __getitem__(self, i):
        return torch.Tensor.__getitem__(self, (i + 1) % 3)
def f(labels):
    n = 0
    for i in range(3):
        n = 10 * n + int(labels[i])  # <<
    return n
print(f(torch.tensor([1, 2, 3]).as_subclass(Shifted)))
""",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_do_the_same_or_are_left(tmp_path, name):
    is_edited, text = SCRIPTS[name]
    assert is_edited_alike(tmp_path, text) == is_edited


def test_which_items_are_seen(tmp_path):
    text = (
        "import torch\ndef f(a, k):\n    b = torch.zeros(3)\n    for i in range(3):\n        a[i], b[i], a[k], a[0]\n"
    )
    project = project_of(tmp_path, train=text)
    loops = LoopsOf(project, project.script, project.script.tree.body[1])
    assert [ast.unparse(each.node) for each in items_in_loops(loops, {})] == ["a[i]", "b[i]"]
    assert is_of_torch(loops, ast.parse("b", mode="eval").body)
    assert not is_of_torch(loops, ast.parse("a", mode="eval").body)
