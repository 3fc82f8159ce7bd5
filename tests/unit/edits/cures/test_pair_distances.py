"""Distances between all rows without their differences: the spellings that are known, and what comes out."""

import pytest
from tests.unit.edits.scripts import edited, same_results

PRODUCT = "({0}.square().sum(-1, keepdim=True) + {1}.square().sum(-1).unsqueeze(-2) - 2 * {0} @ {1}.mT).clamp_min(0)"


def made(folder, text, instead="x.square().sum(-1, True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT"):
    return edited(folder, "distances", f"import torch\n{text}", instead=instead)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("d = (a[:, None] - b[None]).pow(2).sum(-1)", "d = " + PRODUCT.format("a", "b")),
        ("d = ((x.unsqueeze(1) - c.unsqueeze(0)) ** 2).sum(dim=-1)", "d = " + PRODUCT.format("x", "c")),
        ("d = torch.sum((c[None, :, :] - x[:, None, :]).square(), dim=-1)", "d = " + PRODUCT.format("x", "c")),
        ("d = (a[:, :, None] - b[:, None]).pow(2).sum(-1)", "d = " + PRODUCT.format("a", "b")),
        ("d = (f(a)[:, None] - b[None]).pow(2).sum(-1)", "d = torch.cdist(f(a), b).square()"),
        ("d = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs().sum(-1)", "d = torch.cdist(a, b, p=1)"),
        ("d = torch.abs(a[:, None] - b[None]).sum(axis=-1)", "d = torch.cdist(a, b, p=1)"),
        ("d = torch.norm(a[:, None] - b[None], dim=-1)", "d = torch.cdist(a, b)"),
        ("i = (a[:, None] - b[None]).norm(dim=-1).argmin(1)", "i = torch.cdist(a, b).argmin(1)"),
    ],
)
def test_all_usual_spellings_are_known(tmp_path, line, instead):
    after, left = made(tmp_path, f"{line}  # <<\n")
    assert (after, left) == (f"import torch\n{instead}\n", "")


def test_the_form_that_was_faster_is_taken(tmp_path):
    after, _ = made(tmp_path, "d = (a[:, None] - b[None]).pow(2).sum(-1)  # <<\n", "torch.cdist(x, y).square()")
    assert "d = torch.cdist(a, b).square()" in after


def test_differences_with_a_name_of_their_own_go_with_it(tmp_path):
    after, _ = made(tmp_path, "def f(a, b):\n    diff = a[:, None] - b[None]\n    return (diff * diff).sum(-1)  # <<\n")
    assert after == "import torch\ndef f(a, b):\n    return " + PRODUCT.format("a", "b") + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "diff = a[:, None] - b[None]\nd = (diff * diff).sum(-1)  # <<\nprint(diff)\n",
        "diff = a[:, None] - b[None]\nprint(1)\nd = (diff * diff).sum(-1)  # <<\n",
        "d = (a[:, None] - b).pow(2).sum(-1)  # <<\n",
        "d = (a[:, None] - b[:, None]).pow(2).sum(-1)  # <<\n",
        "d = (a[:, None] - b[None]).pow(3).sum(-1)  # <<\n",
        "d = (a[:, None] - b[None]).pow(2).sum(1)  # <<\n",
        "d = (a[:, None] - b[None]).pow(2).sum(-1, keepdim=True)  # <<\n",
        "d = (a[:, None] - b[None]).norm(-1)  # <<\n",
        "d = (a[:, None] + b[None]).pow(2).sum(-1)  # <<\n",
        "d = (a[:, None] - b[None]).pow(2).sum(-1) + (c[:, None] - b[None]).pow(2).sum(-1)  # <<\n",
    ],
)
def test_what_are_no_distances_of_all_pairs_is_left(tmp_path, text):
    after, left = made(tmp_path, text)
    assert after == ""
    assert "differences of all pairs" in left


@pytest.mark.parametrize("how", ["pow(2).sum(-1)", "abs().sum(-1)", "norm(dim=-1)"])
@pytest.mark.parametrize("other", ["torch.cdist(x, y).square()", "x.square()"])
def test_the_same_distances_and_gradients_come_out(tmp_path, how, other):
    text = f"""\
import torch
a, b = torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.randn(5, 4, dtype=torch.float64)
d = (a[:, None] - b[None]).{how}  # <<
d.sum().backward()
found = [d.detach(), a.grad]
"""
    same_results(text, edited(tmp_path, "distances", text, instead=other)[0], "found", exact=False)
