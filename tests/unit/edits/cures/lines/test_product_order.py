"""A product of several matrices from the right: the same up to rounding, whatever the factors are.

Covers flatout.edits.cures.lines.right_products through it.
"""

import numpy as np
import pytest
import torch
from tests.unit.edits.scripts import edited, same_results

SCRIPT = """\
import torch
draw = torch.Generator().manual_seed(0)
a = torch.rand({a}, generator=draw, requires_grad=True)
b = torch.rand({b}, generator=draw)
c = torch.rand({c}, generator=draw, requires_grad=True)
h = a @ b @ c  # <<
h.sum().backward()
found = [h.detach(), a.grad, c.grad]
"""


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("6, 6", "6, 6", "6, 2"),
        ("6, 6", "6, 6", "6"),
        ("6", "6, 6", "6, 2"),
        ("6", "6, 6", "6"),
        ("6, 6", "6", "6, 2"),
        ("6, 6", "3, 6, 6", "6, 2"),
        ("2, 1, 6, 6", "3, 6, 6", "6"),
        ("6, 6", "6, 6", "4, 6, 2"),
        ("6", "6, 6, 6", "6, 6, 6"),
    ],
)
def test_the_same_numbers_and_gradients_come_out(tmp_path, a, b, c):
    text = SCRIPT.format(a=a, b=b, c=c)
    after, left = edited(tmp_path, "product-order", text)
    assert left == ""
    same_results(text, after, "found", exact=False)


NET = """\
import torch
class Net:
    {more}
    def forward(self, walk, x):
        return torch.relu(walk @ walk @ x @ self.w)  # <<
"""


def test_attributes_are_factors_too(tmp_path):
    after, left = edited(tmp_path, "product-order", NET.format(more="w = None"))
    assert left == ""
    assert "torch.relu(multiplied(walk, walk, x, self.w))" in after


@pytest.mark.parametrize(
    "more",
    [
        "@property\n    def w(self):\n        return draw()",
        "w = property(draw)",
        "def __getattr__(self, name):\n        return draw()",
        "def build(self):\n        torch.nn.utils.parametrizations.spectral_norm(self)",
    ],
)
def test_attributes_that_are_made_when_they_are_read_are_left(tmp_path, more):
    after, left = edited(tmp_path, "product-order", NET.format(more=more))
    assert (after, bool(left)) == ("", True)


@pytest.mark.parametrize(
    "line", ["h = a @ b", "h = a @ (b @ c)", "h = a @ f(b) @ c", "h = a @ b @ c + d @ e @ f", "type = 1; h = a @ b @ c"]
)
def test_other_products_are_left(tmp_path, line):
    after, left = edited(tmp_path, "product-order", f"import torch\n{line}  # <<\n")
    assert (after, bool(left)) == ("", True)


LAYERS = """\
{head}
import torch

class Hops(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size, 2))
        self.weight.data.uniform_(-1, 1)
        self.register_buffer("links", torch.eye(size) * 0.5)

    def forward(self, mix, points):
        return torch.tanh(mix @ points @ self.weight)  # <<

def walks(step):
    return step @ step @ step
{more}
"""


def layers(head="", more=""):
    return LAYERS.format(head=head, more=more)


def ran(text, *names):
    space = {}
    exec(compile(text, "train.py", "exec"), space)
    return [space[name] for name in names]


def test_a_power_of_one_matrix_is_multiplied_too(tmp_path):
    text = layers().replace("  # <<", "").replace("step @ step @ step", "step @ step @ step  # <<")
    after, left = edited(tmp_path, "product-order", text)
    assert left == ""
    (walks,) = ran(after, "walks")
    given = torch.rand(4, 4)
    torch.testing.assert_close(walks(given), given @ given @ given)
    assert walks(np.eye(3) * 2).tolist() == (np.eye(3) * 8).tolist()


class Turn:
    """What is multiplied from the left: it has no dimensions, and tells the order."""

    def __init__(self, name):
        self.name = name

    def __matmul__(self, other):
        return Turn(f"({self.name}{other.name})")


def test_what_is_no_tensor_is_multiplied_from_the_left(tmp_path):
    text = "import torch\ndef chain(one, two, three):\n    return one @ two @ three  # <<\n"
    after, left = edited(tmp_path, "product-order", text)
    assert left == ""
    (chain,) = ran(after, "chain")
    assert chain(Turn("a"), Turn("b"), Turn("c")).name == "((ab)c)"
    few = np.full((2, 2), 100, dtype="i1")
    assert chain(few, few, np.ones((2, 2))).tolist() == (few @ few @ np.ones((2, 2))).tolist()
    assert chain(np.eye(2), [[1, 2], [3, 4]], np.eye(2)).tolist() == [[1, 2], [3, 4]]
    for wrong in ((None, None, None), (torch.eye(2), 2, 3), ([1], [2], [3])):
        with pytest.raises(TypeError):
            chain(*wrong)


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("from torch import *", ""),
        ("", "def fade(net):\n    with torch.no_grad():\n        net.weight.mul_(0.9)"),
        ("", "def drop(mix, rows):\n    mix[rows] = 0"),
        ("", "for points in [torch.eye(3)]:\n    points += 1"),
        ("", "net = Hops(3)\nnet.weight.register_hook(print)"),
        ("", "class Made:\n    def __get__(self, owner, kind):\n        return draw()"),
        ("", "walks = torch.jit.script(walks)"),
    ],
)
def test_projects_that_may_see_the_order_or_write_to_factors_are_left(tmp_path, head, more):
    after, left = edited(tmp_path, "product-order", layers(head, more))
    assert (after, bool(left)) == ("", True)


def test_writes_are_no_reason_where_no_graph_is_recorded(tmp_path):
    text = """\
    import torch

    @torch.no_grad()
    def step(p, state):
        left, right = state
        p.add_(left @ p.grad @ right)  # <<
        left.mul_(0.9)
        p.grad.zero_()
    """
    after, left = edited(tmp_path, "product-order", text)
    assert (bool(after), left) == (True, "")
    after, left = edited(tmp_path, "product-order", text.replace("@torch.no_grad()", "@timed"))
    assert (after, bool(left)) == ("", True)


def test_writes_that_come_before_are_no_reason(tmp_path):
    more = "def links(n):\n    mix = torch.zeros(n, n)\n    mix[0] = 1\n    return mix\nmix = links(3)\nmix[1] = jitter"
    after, left = edited(tmp_path, "product-order", layers(more=more))
    assert (bool(after), left) == (True, "")
