"""Every operation in the tables gives the same of many rows at once as of one: values, types and gradients."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flatout.edits.cures.rows.row_operations import FUNCTIONS, LOSSES, MAKERS, METHODS, NUMBERS, ROWS_ALONE
from flatout.edits.reading.effects.pure_calls import words

N, D = 5, 4
_PARAMETERS = {
    "lerp": "(c, 0.3)", "masked_fill": "(r > 0, 2.0)", "where": "(r > 0, c)", "gather": "(0, l[None])",
    "index_select": "(0, l[None])", "take_along_dim": "(l[None], 0)", "transpose": "(0, 0)", "permute": "((0,))",
    "unsqueeze": "(1)", "flip": "([0])", "roll": "(1)", "diagonal": "()", "clamp": "(max=c)",
    "clip": "(-0.5, 0.5)", "clamp_min": "(-0.5)", "clamp_max": "(0.5)", "topk": "(2)", "cumsum": "(0)",
    "cumprod": "(0)", "softmax": "(0)", "log_softmax": "(0)", "logsumexp": "(0)", "view": "(2, 2)",
    "reshape": "((2, 2))", "expand": "(3, 4)", "repeat": "(2)", "to": "(torch.float64)", "pow": "(2)",
    "expand_as": "(b)", "type_as": "(c.double())", "argsort": "()", "vdot": "(c)", "dot": "(c)", "squeeze": "()",
}  # fmt: skip
_MATRICES = {"matmul": "(b.T)", "mm": "(b.T)", "bmm": "", "mv": "(c)", "outer": "(c)", "inner": "(c)"}
_ONE = words(
    "abs neg sign sqrt rsqrt square exp expm1 log log1p log2 log10 sin cos tan tanh sigmoid relu reciprocal erf floor "
    "ceil round trunc frac isnan isinf isfinite logical_not nan_to_num sum mean prod amax amin argmax argmin norm std "
    "var any all count_nonzero flatten t diff detach clone float double half bfloat16 long int bool contiguous cpu "
    "cuda max min sort softplus gelu silu leaky_relu elu logsigmoid"
)
_FUNCTIONS = {
    "torch.stack": "torch.stack([r, c])", "torch.cat": "torch.cat([r, c])", "torch.cdist": "torch.cdist(r[None], b)",
    "torch.einsum": "torch.einsum('kd,d->k', b, r)", "torch.nn.functional.normalize": "F.normalize(r, dim=0)",
    "torch.nn.functional.cross_entropy": "F.cross_entropy(r[None], l[None], weight=c.detach())",
    "torch.nn.functional.nll_loss": "F.nll_loss(F.log_softmax(r, 0), l)",
    "torch.nn.functional.binary_cross_entropy": "F.binary_cross_entropy(r.sigmoid(), c.sigmoid())",
    "torch.cosine_similarity": "torch.cosine_similarity(r[None], b)",
    "torch.nn.functional.cosine_similarity": "F.cosine_similarity(r, b, dim=-1)",
    "torch.nn.functional.pairwise_distance": "F.pairwise_distance(r[None], b)",
    "torch.linalg.norm": "torch.linalg.norm(b - r, dim=1)",
    "torch.linalg.vector_norm": "torch.linalg.vector_norm(r, ord=1)",
    "torch.tril": "torch.tril(r[None] * b)", "torch.triu": "torch.triu(r[None] * b)",
    "torch.trace": "torch.trace(r[:3, None] * b)", "torch.numel": "r * torch.numel(r)",
    "torch.diagonal": "torch.diagonal(r[:3, None] * b)",
}  # fmt: skip
_MAKERS = {
    "zeros": "(4)", "ones": "(4)", "full": "((4,), 0.5)", "empty": "(4) * 0", "arange": "(4)",
    "linspace": "(0, 1, 4)", "eye": "(4)[0]", "tensor": "([1.0, 2.0, 3.0, 4.0])",
}  # fmt: skip


def method(name):
    """Return an expression of a row `r`, a label `l`, another vector `c` and a matrix `b`."""
    if name in NUMBERS:
        return f"r * r.{name}({'0' if name == 'size' else ''})"
    if name in _MATRICES:
        return {"mm": "r[None].mm(b.T)", "mv": "b.mv(r)", "bmm": "r[None, None].bmm(b.T[None])"}.get(
            name, f"r.{name}{_MATRICES[name]}"
        )
    if name in ("tril", "triu", "trace", "diagonal"):
        return f"(r[:3, None] * b).{name}()"
    if name == "floor_divide":
        return "r.detach().floor_divide(c.detach())"
    if name in ("view_as", "reshape_as"):
        return f"r.{name}(b[0])"
    return f"r.{name}{_PARAMETERS.get(name, '()' if name in _ONE else '(c)')}"


def name_of(dotted):
    return dotted.rpartition(".")[2]


def function(dotted):
    if name_of(dotted) in ROWS_ALONE:
        return f"F.{name_of(dotted)}(r, r.roll(1))"
    if dotted == "torch.where":
        return "torch.where(r > 0.5, r, c)"
    if dotted == "torch.floor_divide":
        return "torch.floor_divide(r.detach(), c.detach())"
    if dotted in _FUNCTIONS:
        return _FUNCTIONS[dotted]
    name = dotted.rpartition(".")[2]
    if name in MAKERS and dotted.startswith("torch.") and dotted.count(".") == 1:
        return f"r + torch.{name}{_MAKERS[name]}"
    text, root = method(name), "F" if "functional" in dotted else "torch"
    first, _, rest = text.partition(f".{name}(")
    return f"{root}.{name}({first}{', ' if rest != ')' else ''}{rest}"


def outcome(text, at_once):
    draw = torch.Generator().manual_seed(1)
    x = torch.rand(N, D, generator=draw).mul_(0.8).add_(0.1).requires_grad_()
    b = torch.rand(3, D, generator=draw).requires_grad_()
    labels = torch.randint(0, D, (N,), generator=draw)
    space = {"torch": torch, "F": F, "nn": nn, "b": b, "c": b[0]}
    of = eval(f"lambda r, l: {text}", space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an operation that torch would do row by row
        if at_once:
            found = torch.vmap(of, chunk_size=2)(x, labels)
        else:
            rows = [of(row, label) for row, label in zip(x, labels, strict=True)]
            found = (
                torch.stack(rows) if isinstance(rows[0], torch.Tensor) else [*map(torch.stack, zip(*rows, strict=True))]
            )
    parts = [found] if isinstance(found, torch.Tensor) else list(found)
    grads = [each.sum() for each in parts if each.requires_grad]
    grads = torch.autograd.grad(sum(grads), (x, b), allow_unused=True) if grads else ()
    return parts, [torch.zeros(()) if each is None else each for each in grads]


def same(text):
    (one, grads), (other, others) = outcome(text, False), outcome(text, True)
    assert [each.dtype for each in one] == [each.dtype for each in other]
    for mine, yours in zip([*one, *grads], [*other, *others], strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods(name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    same(method(name))


@pytest.mark.parametrize("dotted", sorted(FUNCTIONS))
def test_functions(dotted):
    same(function(dotted))


@pytest.mark.parametrize("dotted", sorted(LOSSES))
def test_modules(dotted):
    name = dotted.removeprefix("torch.")
    given = {
        "CrossEntropyLoss": "(r[None], l[None])", "NLLLoss": "(r.log_softmax(0)[None], l[None])",
        "BCELoss": "(r.sigmoid(), c.sigmoid())", "CosineSimilarity": "(r[None], b)", "PairwiseDistance": "(r[None], b)",
    }  # fmt: skip
    same(f"{name}(){given.get(name.removeprefix('nn.'), '(r, r.roll(1))')}")
