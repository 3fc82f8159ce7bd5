"""A product of several matrices from the right: the same up to rounding, whatever dimensions the factors have."""

import pytest
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
class Net:
    {more}
    def forward(self, walk, x):
        return torch.relu(walk @ walk @ x @ self.w)  # <<
"""


def test_attributes_are_asked_for_their_dimensions_too(tmp_path):
    after, left = edited(tmp_path, "product-order", NET.format(more="w = None"))
    assert left == ""
    plain, asked = "walk @ walk @ x @ self.w", "min(walk.ndim, x.ndim, self.w.ndim) > 1"
    assert f"torch.relu((walk @ (walk @ (x @ self.w)) if {asked} else {plain}))" in after


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
    "line", ["h = a @ b", "h = a @ (b @ c)", "h = a @ f(b) @ c", "h = a @ b @ c + d @ e @ f", "min = 1; h = a @ b @ c"]
)
def test_other_products_are_left(tmp_path, line):
    after, left = edited(tmp_path, "product-order", f"{line}  # <<\n")
    assert (after, bool(left)) == ("", True)
