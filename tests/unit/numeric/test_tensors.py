"""Elements of tensors on the CPU, read as numbers and written, under `@flatout.compiled`."""

import pytest
import torch
from tests.unit.numeric.served_code import at_once, loaded, num_served

pytest.importorskip("numba")
pytestmark = pytest.mark.slow

ADVANTAGES = """
def f(rewards, values, lost, out):
    for e in range(rewards.shape[1]):
        carried, following = 0.0, 0.5
        for t in reversed(range(len(rewards))):
            alive = 1.0 - float(lost[t, e])
            delta = float(rewards[t, e]) + 0.9 * following * alive - values[t, e].item()
            carried = delta + 0.8 * alive * carried
            out[t, e] = carried
            following = float(values[t, e])
"""
CONFUSION = """
def f(predicted, labels, table):
    right = 0
    for i in range(predicted.size(0)):
        if predicted[i] == labels[i]:
            right += 1
        table[labels[i].item(), int(predicted[i])] += 1
    return right
"""
KEPT = """
def f(values, out):
    first = values[0]
    for i in range(len(values)):
        values[0] = 7.0
        out[i] = float(first)
"""
HELD = """
def f(values, out):
    for i in range(len(values)):
        kept = values[i]
        kept += 1.0
    return float(out[0])
"""


@pytest.fixture(autouse=True)
def told(monkeypatch):
    return at_once(monkeypatch)


def agree(folder, text, *arguments, times=9):
    module = loaded(folder, f"import flatout\n@flatout.compiled\n{text.lstrip()}")
    for _ in range(times):
        mine, theirs = ([each.clone() for each in arguments] for _ in range(2))
        one, other = module.f(*mine), module.f.__wrapped__(*theirs)
        assert type(one) is type(other) and one == other
        assert all(map(torch.equal, mine, theirs))
        assert [each._version > 0 for each in mine] == [each._version > 0 for each in theirs]


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_recursion_over_elements_is_served(dtype, tmp_path):
    lost = drawn(7, 3) > 0
    agree(tmp_path, ADVANTAGES, drawn(7, 3, dtype=dtype), drawn(7, 3, dtype=dtype), lost, drawn(7, 3, dtype=dtype) * 0)
    assert num_served() >= 3


def test_counts_in_a_table_are_served(tmp_path):
    classes = torch.tensor([0, 2, 1, 1, 0, 2, 2])
    agree(tmp_path, CONFUSION, classes, classes.flip(0), torch.zeros(3, 3, dtype=torch.int64))
    assert num_served() >= 3


@pytest.mark.parametrize("text", [KEPT, HELD])
def test_an_element_that_is_kept_is_a_view_and_is_left_to_python(text, tmp_path):
    agree(tmp_path, text, drawn(4), drawn(4))
    assert num_served() == 0


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.requires_grad_(),
        lambda x: x.to(torch.bfloat16),
        lambda x: torch.nn.Parameter(x),
        lambda x: x.to_sparse(),
        lambda x: x.to("meta"),
        lambda x: x[:1, 0].sum(),
    ],
)
def test_other_tensors_are_left_to_python(change, tmp_path):
    text = (
        "import flatout\n@flatout.compiled\ndef f(k, n):\n    t = 0.0\n"
        "    for i in range(n):\n        t += float(k[i, 0])\n    return t\n"
    )
    module, values = loaded(tmp_path, text), change(drawn(3, 3))
    for _ in range(9):
        if values.device.type == "meta" or not values.dim():
            with pytest.raises((IndexError, RuntimeError, NotImplementedError)):
                module.f(values, 3)
        else:
            assert module.f(values.detach() if values.is_sparse else values, 2) == module.f.__wrapped__(values, 2)
    assert num_served() == 0


def test_a_write_to_a_tensor_that_a_backward_pass_needs_is_told_to_torch(tmp_path):
    text = "import flatout\n@flatout.compiled\ndef f(k):\n    for i in range(len(k)):\n        k[i] = 0.5\n"
    function = loaded(tmp_path, text).f
    for _ in range(9):
        function(torch.ones(3))
    assert num_served() > 0
    factor, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    product = (factor * weight).sum()
    function(factor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
