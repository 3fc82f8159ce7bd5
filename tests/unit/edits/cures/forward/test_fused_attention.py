"""Attention written out in many ways, as one call: how it is written, that it comes to the same, and what is left.

Modules: flatout.edits.cures.forward.attention_call, flatout.edits.cures.forward.attention_chain,
flatout.edits.cures.forward.matrix_products.
"""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = """\
import math
import torch
from torch import nn
import torch.nn.functional as F
"""
GIVEN = """\
q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
mask = torch.tril(torch.ones(5, 5))[None, None]
bias = torch.randn(1, 3, 5, 5, dtype=torch.float64, requires_grad=True)
"""


def attention(folder, *lines, before=""):
    text = HEAD + before + "\n".join(lines) + "\n"
    after, left = edited(folder, "fused-attention", text)
    asked = [at for at, line in enumerate(after.split("\n")) if "if " in line and "attends_alike(" in line]
    return (after.split("\n")[asked[0] + 1].strip(), "") if asked else (after, left)


CALL = "F.scaled_dot_product_attention"
WRITTEN = [
    (["out = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(4), dim=-1) @ v  # <<"], "scale=1.0 / math.sqrt(4)"),
    (["w = torch.softmax(torch.matmul(q, k.mT), -1)", "out = torch.matmul(w, v)  # <<"], "scale=1.0"),
    (
        [
            "att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))",
            "att = att.masked_fill(mask[:, :, :5, :5] == 0, float('-inf'))",
            "att = F.softmax(att, dim=-1)",
            "att = F.dropout(att, 0.1, False)",
            "out = att @ v  # <<",
        ],
        "attn_mask=mask[:, :, :5, :5] != 0, dropout_p=0.1 if False else 0.0, scale=1.0 / math.sqrt(k.size(-1))",
    ),
    (
        ["s = q.matmul(k.permute(0, 1, 3, 2)) + bias", "out = s.softmax(dim=3).matmul(v)  # <<"],
        "attn_mask=bias, scale=1.0",
    ),
    (
        ["s = 0.5 * (q @ k.mT)", "s = s.masked_fill(~(mask > 0), -1e9)", "out = s.softmax(-1) @ v  # <<"],
        "attn_mask=torch.zeros_like(~(mask > 0), dtype=v.dtype).masked_fill(~(mask > 0), -1000000000.0), scale=0.5",
    ),
    (
        ["s = q @ k.mT", "s = torch.where(mask > 0, s, -math.inf)", "out = s.softmax(-1) @ v  # <<"],
        "attn_mask=mask > 0, scale=1.0",
    ),
    (["s = q @ k.mT", "s = s.where(mask > 0, -math.inf)", "out = s.softmax(-1) @ v  # <<"],
     "attn_mask=mask > 0, scale=1.0"),
    (
        ["s = q @ k.mT / 2", "s = s + bias", "s.masked_fill_(mask == 0, -math.inf)", "out = s.softmax(-1) @ v  # <<"],
        "attn_mask=bias.masked_fill(mask == 0, -math.inf), scale=1.0 / 2",
    ),
    (
        ["s = q @ k.mT", "if mask is not None:", "    s = s.masked_fill(mask == 0, -math.inf)",
         "out = s.softmax(-1) @ v  # <<"],
        "attn_mask=None if mask is None else mask != 0, scale=1.0",
    ),
    (
        ["s = q @ k.mT", "if bias is not None:", "    s += bias", "out = s.softmax(-1) @ v  # <<"],
        "attn_mask=None if bias is None else bias, scale=1.0",
    ),
    (
        ["s = torch.matmul(q, k.transpose(2, 3))", "s /= math.sqrt(4)",
         "w = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype)", "out = torch.matmul(w, v)  # <<"],
        "scale=1.0 / math.sqrt(4)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "given"), WRITTEN)
def test_the_steps_of_an_attention_become_one_call(tmp_path, lines, given):
    after, left = attention(tmp_path, *lines)
    assert (after, left) == (f"out = {CALL}(q, k, v, {given}).contiguous()", "")


@pytest.mark.parametrize(("lines", "given"), WRITTEN)
def test_values_and_gradients_are_nearly_the_same(tmp_path, lines, given):
    text = HEAD + GIVEN + "\n".join(lines) + "\n(out ** 2).sum().backward()\nfound = [out.detach(), q.grad, v.grad]\n"
    after, _ = edited(tmp_path, "fused-attention", text)
    assert CALL in after
    same_results(text, after, "found", exact=False)


def test_a_factor_that_may_be_trained_stays_with_the_queries(tmp_path):
    before = "class Net(nn.Module):\n    def forward(self, q, k, v, t):\n"
    lines = ["        out = ((q @ k.mT) * t).softmax(-1) @ v  # <<", "        return out"]
    after, _ = attention(tmp_path, *lines, before=before)
    assert after == f"out = {CALL}(q * t, k, v, scale=1.0).contiguous()"


def test_attributes_that_are_numbers_in_their_class_are_a_scale(tmp_path):
    text = """\
class Net(nn.Module):
    def __init__(self, d):
        self.scale = 16 ** -0.5
        self.soft = nn.Softmax(dim=-1)
        self.drop = nn.Dropout(0.1)
    def forward(self, q, k, v):
        weights = self.drop(self.soft((q @ k.transpose(-2, -1)) * self.scale))
        out = weights @ v  # <<
        return out
"""
    after, left = attention(tmp_path, text)
    assert left == ""
    dropped = "dropout_p=self.drop.p if self.drop.training else 0.0"
    assert after == f"out = {CALL}(q, k, v, {dropped}, scale=self.scale).contiguous()"
    trained, _ = attention(tmp_path, text.replace("16 ** -0.5", "nn.Parameter(torch.ones(1))"))
    assert f"{CALL}(q * self.scale, k, v" in trained


def test_a_module_is_no_method_of_tensors(tmp_path):
    text = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout, self.softmax = nn.Dropout(0.0), nn.Softmax(-1)
    def forward(self, q, k, v, mask=None):
        s = torch.matmul(q, k.transpose(-1, -2)) / 2
        if mask is not None:
            s = s + mask
        w = self.dropout(self.softmax(s))
        return torch.matmul(w, v)  # <<
q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
bias = torch.randn(5, 5)
found = [Net()(q, k, v), Net()(q, k, v, bias)]
"""
    after, left = edited(tmp_path, "fused-attention", HEAD + text)
    assert left == ""
    same_results(HEAD + text, after, "found", exact=False)


@pytest.mark.parametrize(
    ("scores", "out", "sizes"),
    [
        ("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", ("2, 3, 5, 4", "2, 3, 6, 4")),
        ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", ("2, 5, 3, 4", "2, 6, 3, 4")),
        ("nqhd,nkhd->nhqk", "nhql,nlhd->nqhd", ("2, 5, 3, 4", "2, 6, 3, 4")),
    ],
)
def test_an_einsum_is_turned_as_the_call_wants_it(tmp_path, scores, out, sizes):
    start = f"q, k, v = torch.randn({sizes[0]}), torch.randn({sizes[1]}), torch.randn({sizes[1]})\n"
    lines = f'w = torch.softmax(torch.einsum("{scores}", [q, k]) / 2.0, dim=-1)\n'
    text = HEAD + start + lines + f'out = torch.einsum("{out}", w, v)  # <<\n'
    after, left = edited(tmp_path, "fused-attention", text)
    assert left == "" and CALL in after
    same_results(text, after, "out", exact=False)


def test_products_of_three_dimensions_get_a_head(tmp_path):
    start = "q, k, v = (torch.randn(2, 5, 4) for _ in range(3))\n"
    text = HEAD + start + "out = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(2), v)  # <<\n"
    after, _ = edited(tmp_path, "fused-attention", text)
    assert f"{CALL}(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), scale=1.0).squeeze(1).contiguous()" in after
    same_results(text, after, "out", exact=False)


def test_a_branch_beside_a_fused_one_is_written_alone(tmp_path):
    lines = ["if fused:", "    y = f(q, k, v)", "else:", "    att = q @ k.mT", "    att = F.softmax(att, -1)",
             "    y = att @ v  # <<"]  # fmt: skip
    after, _ = edited(tmp_path, "fused-attention", HEAD + "\n".join(lines) + "\n")
    assert after.endswith(
        "if fused:\n    y = f(q, k, v)\nelse:\n    if attends_alike(q, k, v, 0, None, False, [], 0.0):\n"
        f"        y = {CALL}(q, k, v, scale=1.0).contiguous()\n    else:\n        att = q @ k.mT\n"
        "        att = F.softmax(att, -1)\n        y = att @ v\n"
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["w = (q @ k.mT).softmax(-1)", "out = w @ v  # <<", "show(w)"], "w, which would no longer be made, is read"),
        (["self.w = (q @ k.mT).softmax(-1)", "out = self.w @ v  # <<"], "is neither a scale, a mask"),
        (["out = (q @ k.mT).softmax(1 - 2) @ v  # <<"], "not over the last dimension"),
        (["out = (q @ k.mT).softmax(-2) @ v  # <<"], "not over the last dimension"),
        (["out = (q @ k.mT).sigmoid() @ v  # <<"], "neither a scale, a mask, a softmax nor a dropout"),
        (["out = ((q @ k.mT + b) / 2).softmax(-1) @ v  # <<"], "scaled after a mask"),
        (["w = (q @ k.mT).softmax(-1)", "w = w / w.sum(-1, keepdim=True)", "out = w @ v  # <<"], "done to the weights"),
        (["w = (q @ k.mT).softmax(-1)", "v = norm(v)", "out = w @ v  # <<"], "norm(v) between"),
        (["s = q @ k.mT", "k = norm(k)", "out = s.softmax(-1) @ v  # <<"], "k is bound or changed between"),
        (["s = q @ k.mT", "k.mul_(2)", "out = s.softmax(-1) @ v  # <<"], "k is bound or changed between"),
        (["s = net(q) @ k.mT", "log(1)", "out = s.softmax(-1) @ v  # <<"], "net(q) would be worked out twice"),
        (["s = q @ k.mT", "s = s.masked_fill(s > 9, 0)", "out = s.softmax(-1) @ v  # <<"], "s is read between"),
        (["if flag:", "    s = q @ k.mT", "out = s.softmax(-1) @ v  # <<"], "s is read or bound between"),
        (
            [
                "s = q @ k.mT",
                "if mask is not None:",
                "    s = (s * 2).masked_fill(mask, -math.inf)",
                "out = s.softmax(-1) @ v  # <<",
            ],
            "more than one thing is done under a condition",
        ),
        (
            [
                "w = (q @ k.mT).softmax(-1)",
                "if other is not None:",
                "    w = (q @ other.mT).softmax(-1)",
                "out = w @ v  # <<",
            ],
            "more than one thing is done under a condition",
        ),
        (["out = f(x)  # <<"], "is not found on this line"),
        (["out = scaled_dot_product_attention(q, k, v)  # <<"], "is not found on this line"),
        (["w = (q @ k.mT).softmax(-1)", "w = F.dropout(w)", "z = draw(3)", "out = w @ v  # <<"], "draw(3) between"),
        (["out = (q @ k.mT).softmax(-1) @ norm(v)  # <<"], "norm(v) would be worked out twice"),
        (["out = (q @ k.mT).softmax(-1) @ v  # <<", "g = d(out, q, create_graph=True)"], "create_graph may see"),
        (["out = (q @ k.mT).softmax(-1) @ v  # <<", "print(globals())"], "globals() may see"),
        (["out = torch.bmm((q @ k.transpose(2, 3)).softmax(-1), v)  # <<"], "counted in several ways"),
        (["net.register_forward_hook(h)", "out = (q @ k.mT).softmax(-1) @ v  # <<"], "forward_hook may see"),
    ],
)
def test_steps_that_do_more_are_left(tmp_path, lines, reason):
    after, left = attention(tmp_path, *lines)
    assert reason in left
    assert after == ""


ODD = """\
class Scale(nn.Module):
    p = 0.5
    def forward(self, x):
        return x * 0.5
def plain(x):
    return x * 0.5
q, k, v = (torch.randn(SIZES) for _ in range(3))
GIVEN
LINES
found = [out.nan_to_num(7.5)]
"""


@pytest.mark.parametrize(
    ("sizes", "given", "lines"),
    [
        ("2, 3, 5, 4", "m = torch.zeros(5, 5)\nm[1:] = 1", "s = q @ k.mT\ns = s.masked_fill(m == 0, -math.inf)"),
        ("2, 3, 5, 4", "v = v.double()\nq = k = q.double() * 9\nm = torch.zeros(5, 5)",
         "s = q @ k.mT\ns = s.masked_fill(m == 0, -1e9)"),
        ("2, 3, 5, 4", "m = torch.ones(5)\nm[3] = 0", "s = q @ k.mT\ns = s.masked_fill(m == 0, -math.inf)"),
        ("2, 3, 5, 4", "b = torch.ones(5, 5).tril().bool()", "s = q @ k.mT\ns = s + b"),
        ("2, 3, 5, 4", "b = 0.5", "s = q @ k.mT\ns = s + b"),
        ("2, 3, 5, 4", "b = torch.arange(5)", "s = q @ k.mT\ns = s + b"),
        ("2, 3, 5, 4", "", "s = (q @ k.mT).softmax(1)\nout = s @ v  # <<"),
        ("3, 5, 5", "", "s = (q @ k.transpose(1, 2)).softmax(2)\nout = s @ v  # <<"),
        ("4", "q, k, v = (torch.randn(2, 5, 5, 4) for _ in range(3))\nk = k.mT.transpose(1, 2)",
         "s = (q @ k.transpose(1, 2)).softmax(-1)\nout = s @ v  # <<"),
        ("2, 3, 5, 5", "t = torch.rand(5, 5)", "s = q @ k.mT * t"),
        ("2, 3, 5, 4", "t = torch.rand(3, 1, 1)", "s = q @ k.mT * t"),
        ("2, 3, 5, 4", "drop = plain", "s = q @ k.mT\ns = drop(s.softmax(-1))\nout = s @ v  # <<"),
        ("2, 3, 5, 4", "drop = Scale()", "s = q @ k.mT\ns = drop(s.softmax(-1))\nout = s @ v  # <<"),
        ("4", "k = v = torch.randn(5, 4)", "s = q @ k.mT"),
        ("3, 4", "k, v = torch.randn(5, 4), torch.randn(5)", "s = q @ k.mT"),
        ("2, 3, 5, 4", "v = v.double()\nq = q.double()\nk = k.double()", "s = q @ k.mT"),
    ],
)  # fmt: skip
def test_the_steps_stay_for_what_the_call_does_otherwise(tmp_path, sizes, given, lines):
    if "# <<" not in lines:
        lines += "\nout = s.softmax(-1) @ v  # <<"
    text = HEAD + ODD.replace("SIZES", sizes).replace("GIVEN", given).replace("LINES", lines)
    after, left = edited(tmp_path, "fused-attention", text)
    assert left == ""
    assert CALL in after
    same_results(text, after, "found", exact=False)


def test_what_comes_out_has_the_order_in_memory_of_a_product(tmp_path):
    text = HEAD + GIVEN + "out = (q @ k.mT).softmax(-1) @ v  # <<\nfound = [out.view(6, 5, 4).detach()]\n"
    after, _ = edited(tmp_path, "fused-attention", text.replace("dtype=torch.float64, ", ""))
    same_results(text.replace("dtype=torch.float64, ", ""), after, "found", exact=False)
