"""Distances between all rows without their differences: the spellings that are known, and what comes out."""

import pytest
from tests.unit.edits.scripts import edited, same_results

EXACT = 'torch.cdist({}, {}, compute_mode="donot_use_mm_for_euclid_dist")'


def made(folder, text, instead="x.square().sum(-1, True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT"):
    return edited(folder, "distances", f"import torch\n{text}", instead=instead)


@pytest.mark.parametrize(
    ("line", "form", "given"),
    [
        ("d = (a[:, None] - b[None]).pow(2).sum(-1)", EXACT.format("x", "y") + ".square()", "(a, b)"),
        ("d = ((x.unsqueeze(1) - c.unsqueeze(0)) ** 2).sum(dim=-1)", EXACT.format("x", "y") + ".square()", "(x, c)"),
        (
            "d = torch.sum((c[None, :, :] - x[:, None, :]).square(), dim=-1)",
            EXACT.format("x", "y") + ".square()",
            "(c, x)",
        ),
        ("d = (a[:, :, None] - b[:, None]).pow(2).sum(-1)", EXACT.format("x", "y") + ".square()", "(a, b)"),
        ("d = (f(a)[:, None] - b[None]).pow(2).sum(-1)", EXACT.format("x", "y") + ".square()", "(f(a), b)"),
        ("d = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs().sum(-1)", "torch.cdist(x, y, p=1)", "(a, b)"),
        ("d = torch.abs(a[:, None] - b[None]).sum(axis=-1)", "torch.cdist(x, y, p=1)", "(a, b)"),
        ("d = torch.norm(a[:, None] - b[None], dim=-1)", EXACT.format("x", "y"), "(a, b)"),
        ("i = (a[:, None] - b[None]).norm(dim=-1).argmin(1)", EXACT.format("x", "y"), "(a, b).argmin(1)"),
    ],
)
def test_all_usual_spellings_are_known(tmp_path, line, form, given):
    after, left = made(tmp_path, f"{line}  # <<\n")
    assert left == ""
    order = "y, x" if given == "(c, x)" else "x, y"
    assert f"(lambda {order}: {form} if type(x) in (" in after
    assert after.endswith(f"){given}\n")


def test_differences_with_a_name_of_their_own_go_with_it(tmp_path):
    after, _ = made(tmp_path, "def f(a, b):\n    diff = a[:, None] - b[None]\n    return (diff * diff).sum(-1)  # <<\n")
    assert after.startswith("import torch\ndef f(a, b):\n    return (lambda x, y: torch.cdist(")
    assert after.endswith(" else ((x[:, None] - y[None]) * (x[:, None] - y[None])).sum(-1))(a, b)\n")


ODD = {
    "a distance from itself": ("a = torch.rand(60, 3) * 50\nd = (a[:, None] - a[None]).norm(dim=-1)  # <<\n"
        "found = [(d == 0).float()]\n"),
    "far from zero": (
        "a, b = 2e4 + torch.rand(40, 2), 2e4 + torch.rand(30, 2)\n"
        "d = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)  # <<\nfound = [d]\n"
    ),
    "more dimensions, fewer, and other types": (
        "def pairs(v):\n    return torch.as_tensor(((v[:, None] - v[None]) ** 2).sum(-1)).float()  # <<\n"
        "found = [pairs(x) for x in (torch.rand(4, 3), torch.rand(2, 4, 3), torch.rand(5), torch.arange(8).view(4, 2),"
        " torch.rand(4, 3).half(), np.ones((3, 2)), torch.rand(3, 1).double())]\n"
    ),
    "one column for all": ("a, b = torch.rand(4, 1), torch.rand(3, 5)\n"
        "d = (b[None] - a[:, None]).abs().sum(-1)  # <<\nfound = [d]\n"),
    "drawn in order": "d = (torch.rand(3, 2)[None] - torch.randn(4, 2)[:, None]).square().sum(-1)  # <<\nfound = [d]\n",
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_distances_that_are_no_others_are_the_same(tmp_path, name):
    text = "import torch\nimport numpy as np\n" + ODD[name]
    after, left = edited(tmp_path, "distances", text, instead="x.square()")
    assert left == ""
    same_results(text, after, "found", exact=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("diff = a[:, None] - b[None]\nwhile (diff ** 2).sum(-1).max() > 1:  # <<\n    a = f(a)\n", "may be others"),
        ("diff = a[:, None] - b[None]\nlater = lambda: (diff ** 2).sum(-1)  # <<\n", "may be others"),
        ("diff = a[:, None] - b[None]\nd = f(move(a), (diff ** 2).sum(-1))  # <<\n", "may be others"),
        (
            "d = (a[:, None] - b[None]).pow(2).sum(-1)  # <<\ng = grad(d.sum(), a, create_graph=True)\n",
            "gradients of its",
        ),
    ],
)
def test_what_is_computed_at_another_time_is_left(tmp_path, text, reason):
    after, left = made(tmp_path, text)
    assert after == ""
    assert reason in left


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
