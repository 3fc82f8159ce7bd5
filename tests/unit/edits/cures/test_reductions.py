"""Norms, variances and argmax by sums and maxima: how they are written, and that they come to the same."""

import pytest
import torch
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nimport numpy as np\n"


def sums(folder, line, operation="linalg_vector_norm", **measured):
    return edited(folder, "sums", f"{HEAD}{line}  # <<\n", operation=operation, **measured)


@pytest.mark.parametrize(
    ("line", "sums_", "given"),
    [
        ("d = self.stack(x).norm(dim=0)", "x.square().sum(0)", "(self.stack(x))\n"),
        ("d = torch.norm(a - b, 2, 1, keepdim=True) + 1", "x.square().sum(1, keepdim=True)", "(a - b) + 1\n"),
        ("d = torch.linalg.vector_norm(x, dim=-2)", "x.square().sum(-2)", "(x)\n"),
        ("d = torch.linalg.norm(x, axis=1)", "x.square().sum(1)", "(x)\n"),
        ("d = [y.norm(p=2, dim=0) for y in x]", "x.square().sum(0)", "(y) for y in x]\n"),
        ("d = a.norm(dim=0, keepdim=flag())", "x.square().sum(0, keepdim=keep)", "(a, flag())\n"),
    ],
)
def test_a_norm_is_the_root_of_a_sum_of_squares(tmp_path, line, sums_, given):
    after, left = sums(tmp_path, line)
    assert left == ""
    assert f"(sums := {sums_}).numel() and 1e-30 < sums.amin() and sums.amax() < 1e30" in after
    assert after.startswith(HEAD) and after.endswith(given)


def test_a_spread_is_a_sum_of_squares_by_the_number_of_values(tmp_path):
    after, _ = sums(tmp_path, "v = x.var(1)", "var")
    assert "(lambda x: sums / (x.size(1) - 1) if " in after
    assert "(sums := (x - (mean := x.mean(1, keepdim=True))).square().sum(1)).numel()" in after
    after, _ = sums(tmp_path, "v = torch.std(self.x, dim=0, correction=0, keepdim=True)", "std")
    assert "(sums / x.size(0)).sqrt() if " in after
    assert after.endswith(" else torch.std(x, dim=0, correction=0, keepdim=True))(self.x)\n")


ODD = {
    "columns that do not change, for a scale": (
        "std",
        "x = torch.randn(9, 4)\nx[:, 2] = 0.3\nscale = x.std(0)  # <<\nscale[scale == 0] = 1\nfound = [x / scale]\n",
    ),
    "a row of padding": (
        "linalg_vector_norm",
        "x = torch.randn(4, 6)\nx[3] = 0\nn = torch.linalg.vector_norm(x, dim=1, keepdim=True)  # <<\n"
        "found = [(x / n).isnan().float(), (n > 0).float(), n.log().isinf().float()]\n",
    ),
    "complex, whole and half": (
        "linalg_vector_norm",
        "def size(v):\n    try:\n        return v.norm(dim=0)  # <<\n"
        "    except RuntimeError:\n        return torch.ones(1)\n"
        "x = torch.randn(3, 5)\nfound = [size(x), size(x.to(torch.complex64)).real, size(x.long()), size(x.half())]\n",
    ),
    "arrays": (
        "std",
        "def s(v):\n    return torch.as_tensor(v.std(0))  # <<\nx = torch.randn(3, 5)\nfound = [s(x), s(x.numpy())]\n",
    ),
    "far from zero": ("var", "x = torch.randn(50, 4) * 1e-3 + 1e4\nfound = [x.var(0)]  # <<\n"),
    "out of range": ("linalg_vector_norm", "x = torch.randn(5, 4) * 1e22\nfound = [x.norm(dim=0)]  # <<\n"),
    "drawn anew": (
        "var",
        "class B:\n    @property\n    def x(self):\n        return torch.randn(5, 3)\n"
        "b = B()\nfound = [b.x.var(0), torch.rand(1)]  # <<\n",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_sums_that_say_too_little_go_as_they_are_written(tmp_path, name):
    operation, text = ODD[name]
    after, left = edited(tmp_path, "sums", f"{HEAD}{text}", operation=operation)
    assert left == ""
    same_results(f"{HEAD}{text}", after, "found", exact=False)


def test_sums_are_left_where_code_is_compiled(tmp_path):
    assert "what is traced" in sums(tmp_path, "f = torch.compile(f)\nd = x.norm(dim=0)")[1]


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
    ("line", "form", "given"),
    [
        ("p = (model(x) + 1).argmax(1)", "x.max(1).indices", "x.argmax(1))(model(x) + 1)\n"),
        ("n += (out.argmax(dim=1) == y).sum()", "x.max(1).indices", "x.argmax(dim=1))(out) == y).sum()\n"),
        ("p = torch.argmin(d, dim=-1, keepdim=True)", "x.min(-1, keepdim=True).indices", "keepdim=True))(d)\n"),
    ],
)
def test_an_argmax_is_the_place_of_a_maximum(tmp_path, line, form, given):
    after, left = edited(tmp_path, "maximum", f"{HEAD}{line}  # <<\n")
    assert left == ""
    assert f"(lambda x: {form} if type(x) in (torch.Tensor, torch.nn.Parameter) and " in after
    assert after.endswith(given)


def test_an_argmax_of_something_else_is_as_it_was(tmp_path):
    text = f"""{HEAD}
class Scores:
    def argmax(self, dim):
        return torch.tensor([dim])
def best(scores):
    try:
        return torch.as_tensor(scores.argmax(1))  # <<
    except RuntimeError:
        return torch.zeros(0)
x = torch.randn(3, 4)
found = [best(x), best(x.numpy()), best(x > 0), best(Scores())]
"""
    after, left = edited(tmp_path, "maximum", text)
    assert left == ""
    same_results(text, after, "found")


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
