"""The operations of a forward pass, by kind, type and layout, and products around a softmax."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from flatout.probe.model.operations import Counter

B, H, T, D = 2, 3, 64, 16


def counted(work):
    counter = Counter()
    with counter:
        work()
    return counter


def test_products_are_counted_by_type():
    module, x = nn.Linear(8, 4), torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = counted(lambda: module(x))
    assert found.flops == {"matmul bfloat16": 2.0 * 16 * 8 * 4}
    assert counted(lambda: module(x)).flops == {"matmul float32": 2.0 * 16 * 8 * 4}


@pytest.mark.parametrize("layout", ["channels-first", "channels-last"])
def test_convolutions_are_counted_by_layout(layout):
    module, x = nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 16, 16)
    if layout == "channels-last":
        module, x = (each.to(memory_format=torch.channels_last) for each in (module, x))
    assert counted(lambda: module(x)).flops == {f"convolution float32 {layout}": 2.0 * 2 * 16 * 16 * 8 * 27}


def by_hand(q, k, v, between=lambda scores: scores, behind=lambda weights: weights):
    scores = between(q @ k.transpose(-1, -2) / 4)
    return behind(torch.softmax(scores, -1)) @ v  # ATTENTION


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({}, id="plain"),
        pytest.param({"between": lambda s: s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)}, id="masked"),
        pytest.param({"behind": lambda w: functional.dropout(w, 0.1)}, id="dropout"),
        pytest.param({"between": lambda s: s + torch.zeros(T)}, id="biased"),
    ],
)
def test_products_around_a_softmax_are_attention_at_the_users_line(parts):
    q, k, v = (torch.randn(B, H, T, D, requires_grad=True) for _ in range(3))
    found = counted(lambda: by_hand(q, k, v, **parts))
    assert found.attention_flops == 2 * (2.0 * B * H * T * T * D)
    assert (found.attention_at.file, found.attention_at.function) == (__file__, "by_hand")


def test_fused_attention_and_a_softmax_at_the_end_are_not():
    q, k, v = (torch.randn(B, H, T, D) for _ in range(3))
    classifier = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 4), nn.Softmax(-1))
    for work in (
        lambda: functional.scaled_dot_product_attention(q, k, v),
        lambda: classifier(q),
        lambda: functional.cross_entropy(classifier(q).flatten(0, 2), torch.zeros(B * H * T, dtype=torch.long)),
    ):
        found = counted(work)
        assert (found.attention_flops, found.attention_at) == (0.0, None)


def test_gradients_are_the_same_under_the_counter():
    torch.manual_seed(0)
    module, x = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), torch.randn(2, 5, 16)
    expected = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    outputs = []
    counted(lambda: outputs.append(module(x).sum()))
    found = torch.autograd.grad(outputs[0], list(module.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("shape", "columns", "dtype", "counts"),
    [
        ((16, 8), 24, torch.bfloat16, False),
        ((16, 8), 25, torch.bfloat16, True),
        ((16, 9), 24, torch.float16, True),
        ((17, 8), 24, torch.float16, False),
        ((16, 9), 25, torch.float32, False),
    ],
)
def test_products_of_16_bit_matrices_whose_rows_are_no_multiple_of_16_bytes_are_counted(shape, columns, dtype, counts):
    x, weight = torch.zeros(shape, dtype=dtype), torch.zeros(columns, shape[1], dtype=dtype)
    found = counted(lambda: (functional.linear(x, weight), x[None] @ weight.T))
    each = 2.0 * shape[0] * shape[1] * columns
    assert found.unaligned_flops == (2 * each if counts else 0.0)
    assert found.unaligned_sizes == ((*shape, columns) if counts else ())
    assert (found.unaligned_at is not None) is counts


def test_experts_that_a_softmax_chooses_among_are_no_attention():
    router, expert, head = nn.Linear(D, 4), nn.Linear(D, D), nn.Linear(D, D)
    x = torch.randn(T, D)

    def mixture():
        weights, _ = torch.softmax(router(x), -1).topk(1)
        return head(x + weights * expert(x))

    assert counted(mixture).attention_flops == 0
