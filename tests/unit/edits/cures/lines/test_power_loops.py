"""A power that a loop makes, multiplied from the right: the same up to rounding, or left as it is."""

import pytest
from tests.unit.edits.scripts import edited, same_results

SPREAD = """\
import torch

draw = torch.Generator().manual_seed(0)
w = torch.rand({w}, generator=draw, requires_grad=True)
x = torch.rand({x}, generator=draw, requires_grad=True)


def spread(steps):
    far = w * 0.5
    for step in range(steps):
        far = far @ w  # <<
    out = far @ x
    return out


made = [spread(3), spread(0), spread(1)]
torch.cat([each.sum()[None] for each in made]).sum().backward()
found = [*(each.detach() for each in made), w.grad, x.grad]
"""


@pytest.mark.parametrize(("w", "x"), [("5, 5", "5, 2"), ("5, 5", "5"), ("3, 5, 5", "5, 2"), ("3, 5, 5", "5")])
def test_the_same_numbers_and_gradients_come_out(tmp_path, w, x):
    text = SPREAD.format(w=w, x=x)
    after, left = edited(tmp_path, "product-order", text)
    assert left == ""
    assert "factors.append(w)" in after
    same_results(text, after, "found", exact=False)


CHANGES = [
    ("far = w * 0.5\n", "far = w * 0.5\n    w.mul_(0.5)\n"),
    ("far = far @ w  # <<", "w = w * 2\n        far = far @ w  # <<"),
    ("far = far @ w  # <<", "far = far @ w.mul_(0.5)  # <<"),
    ("far = far @ w  # <<", "far = w @ far  # <<"),
    ("out = far @ x", "x.mul_(2)\n    out = far @ x"),
    ("out = far @ x", "out = far @ make(x)"),
    ("out = far @ x", "out = far @ x + far.sum()"),
    ("return out", "return out, far"),
    ("range(steps)", "others()"),
    ("for step in range(steps)", "for w in range(steps)"),
    ("def spread(steps):", "def spread(steps):\n    global far"),
]


@pytest.mark.parametrize(("one", "other"), CHANGES)
def test_other_loops_are_left(tmp_path, one, other):
    text = SPREAD.format(w="5, 5", x="5, 2")
    assert one in text
    after, left = edited(tmp_path, "product-order", text.replace(one, other))
    assert (after, bool(left)) == ("", True)
