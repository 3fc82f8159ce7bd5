"""Norms, variances and argmax by sums and maxima: how they are written, and that they come to the same."""

import pytest
import torch
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nimport numpy as np\n"


def sums(folder, line, operation="linalg_vector_norm", **measured):
    return edited(folder, "sums", f"{HEAD}{line}  # <<\n", operation=operation, **measured)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("d = self.stack(x).norm(dim=0)", "d = self.stack(x).square().sum(0).clamp_min(1e-36).sqrt()"),
        (
            "d = torch.norm(a - b, 2, 1, keepdim=True) + 1",
            "d = (a - b).square().sum(1, keepdim=True).clamp_min(1e-36).sqrt() + 1",
        ),
        ("d = torch.linalg.vector_norm(x, dim=-2)", "d = x.square().sum(-2).clamp_min(1e-36).sqrt()"),
        ("d = torch.linalg.norm(x, axis=1)", "d = x.square().sum(1).clamp_min(1e-36).sqrt()"),
        ("d = [y.norm(p=2, dim=0) for y in x]", "d = [y.square().sum(0).clamp_min(1e-36).sqrt() for y in x]"),
    ],
)
def test_a_norm_is_the_root_of_a_sum_of_squares(tmp_path, line, instead):
    after, left = sums(tmp_path, line)
    assert (after, left) == (f"{HEAD}{instead}\n", "")


def test_a_spread_is_a_sum_of_squares_by_the_number_of_values(tmp_path):
    assert (
        "((x - x.mean(1, keepdim=True)).square().sum(1) / (x.size(1) - 1))" in sums(tmp_path, "v = x.var(1)", "var")[0]
    )
    after, _ = sums(tmp_path, "v = torch.std(self.x, dim=0, correction=0, keepdim=True)", "std")
    assert ".square().sum(0, keepdim=True) / self.x.size(0)).clamp_min(1e-36).sqrt()" in after


@pytest.mark.parametrize(
    ("line", "operation", "reason"),
    [
        ("d = x.norm(1, dim=0)", "linalg_vector_norm", "is of a kind that sums of squares do not give"),
        ("d = torch.norm(x, dim=0, dtype=t)", "linalg_vector_norm", "is of a kind"),
        ("d = x.norm()", "linalg_vector_norm", "a single norm, var or std over one dimension is not found"),
        ("d = x.norm(dim=(0, 1))", "linalg_vector_norm", "is not found"),
        ("d = x.norm(dim=k)", "linalg_vector_norm", "is not found"),
        ("d = x.norm(dim=0) + y.norm(dim=0)", "linalg_vector_norm", "is not found"),
        ("d = np.linalg.norm(x, axis=0)", "linalg_vector_norm", "is not found"),
        ("v = f(x).var(dim=0)", "var", "is of a kind"),
        ("v = x.var(0, unbiased=flag)", "var", "is of a kind"),
        ("v = x.var(0, correction=3)", "var", "is of a kind"),
        ("v = x.norm(dim=0)", "var", "is not found"),
    ],
)
def test_other_norms_and_unclear_ones_are_left(tmp_path, line, operation, reason):
    after, left = sums(tmp_path, line, operation)
    assert after == ""
    assert reason in left


def test_numbers_whose_squares_do_not_fit_are_left(tmp_path):
    assert "out of its range" in sums(tmp_path, "d = x.norm(dim=0)", dtype="float16")[1]


@pytest.mark.parametrize(
    "line", ["d = x.norm(dim=0)", "d = x.std(0, unbiased=False)", "d = x.var(dim=1, keepdim=True)"]
)
def test_values_and_gradients_are_nearly_the_same_and_zero_where_there_is_nothing(tmp_path, line):
    start = "torch.manual_seed(1)\nx = torch.randn(5, 7)\nx[:, 2] = 0\nx.requires_grad_()\n"
    text = f"{HEAD}{start}{line}  # <<\nd.sum().backward()\nfound = [d.detach(), x.grad]\n"
    operation = next(name for name in ("norm", "std", "var") if name in line)
    after, _ = edited(tmp_path, "sums", text, operation=operation.replace("norm", "linalg_vector_norm"))
    same_results(text, after, "found", exact=False)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("p = (model(x) + 1).argmax(1)", "p = (model(x) + 1).max(1).indices"),
        ("n += (out.argmax(dim=1) == y).sum()", "n += (out.max(1).indices == y).sum()"),
        ("p = torch.argmin(d, dim=-1, keepdim=True)", "p = d.min(-1, keepdim=True).indices"),
    ],
)
def test_an_argmax_is_the_place_of_a_maximum(tmp_path, line, instead):
    assert edited(tmp_path, "maximum", f"{HEAD}{line}  # <<\n")[0] == f"{HEAD}{instead}\n"


@pytest.mark.parametrize(
    "line", ["p = x.argmax()", "p = np.argmax(x, 1)", "p = x.argmax(dim)", "p = x.argmax(1, out=o)"]
)
def test_the_place_in_all_numbers_is_left(tmp_path, line):
    assert edited(tmp_path, "maximum", f"{HEAD}{line}  # <<\n")[0] == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("which", ["max", "min"])
def test_equal_values_and_nan_are_placed_as_argmax_places_them(dtype, dim, which):
    numbers = torch.randint(0, 3, (33, 17, 65), generator=torch.Generator().manual_seed(0))
    strided = numbers.to(dtype).transpose(0, 2)
    for x in (numbers.to(dtype), strided, strided.contiguous()):
        if dtype.is_floating_point:
            x = x.clone()
            x[torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.05] = torch.nan
        if dtype is torch.bool and which == "min":
            continue
        try:
            wanted = getattr(x, f"arg{which}")(dim)
        except RuntimeError:  # a type that torch has no argmax of
            return
        assert torch.equal(getattr(x, which)(dim).indices, wanted)
