"""Numbers written into a tensor one by one: through its NumPy view, with the same bits, or left with a reason."""

import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited

HEAD = "import random\nimport torch\n"

ONE_HOT = """
class Genes:
    def one_hot(self, text):
        x = torch.zeros(4, len(text))
        for at, base in enumerate(text):
            if base in "ACGT":
                x["ACGT".index(base), at] = 1.0
        return x

    def __getitem__(self, at):
        return self.one_hot(self.texts[at]), at  # <<
"""

COLLATE = """
def put_together(rows):
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), 7, dtype=torch.long), None
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    seen = torch.zeros(9, dtype=torch.int32)
    for r, words in enumerate(rows):
        c = 0
        while c < len(words):
            mask[r, c] = True  # <<
            seen[words[c]] += 1
            c += 1
    return mask, seen
"""

MEASURED = """
def values(tests):
    made = torch.full((6,), -1.5)
    for name, value in tests:
        made[name] = float(value)  # <<
        if name == 3:
            made[name] = -0.1
    return made.double() * 2
"""


def written(folder, text):
    return edited(folder, "element-writes", HEAD + text)


def names_of(text):
    names = {}
    exec(HEAD + text, names)
    return names


def test_in_a_function_that_the_line_calls(tmp_path):
    after, left = written(tmp_path, ONE_HOT)
    assert left == ""
    assert "        array_of_x = x.numpy()  # the same memory\n        for at" in after
    assert '                array_of_x["ACGT".index(base), at] = 1.0\n        return x\n' in after


@settings(max_examples=50)
@given(st.text("ACGTN", min_size=1, max_size=30))
def test_the_same_ones(tmp_path_factory, text):
    after, _ = written(tmp_path_factory.mktemp("genes"), ONE_HOT)
    plain, ours = (names_of(code)["Genes"]().one_hot(text) for code in (ONE_HOT, after))
    assert torch.equal(plain, ours) and plain.dtype == ours.dtype


def test_each_tensor_that_is_bound_once_gets_its_array(tmp_path):
    after, left = written(tmp_path, COLLATE)
    assert left == ""
    assert "array_of_seen[words[c]] += 1" in after
    assert "mask[r, c] = True" in after, "it is bound twice"
    rows = [[1, 2, 8], [3], [], [8, 8]]
    plain, ours = (names_of(code)["put_together"](rows) for code in (COLLATE, after))
    assert all(map(torch.equal, plain, ours))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(-6, 5), st.floats(width=64, allow_infinity=True)), max_size=12))
def test_numbers_are_converted_as_torch_does(tmp_path_factory, tests):
    after, _ = written(tmp_path_factory.mktemp("values"), MEASURED)
    found = []
    for code in (MEASURED, after):
        random.seed(3)
        with numpy.errstate(all="ignore"):
            try:
                found.append(names_of(code)["values"](tests).numpy().tobytes())
            except RuntimeError as error:  # torch: beyond float32
                found.append(type(error))
    assert found[0] == found[1] or found[0] is RuntimeError


@pytest.mark.parametrize(
    ("made", "write"),
    [
        ("x = torch.zeros(9, device=device)", "x[i] = 1.0"),
        ("x = torch.zeros(9, dtype=torch.bfloat16)", "x[i] = 1.0"),
        ("x = torch.zeros(9, dtype=torch.float16)", "x[i] = 1.0"),
        ("x = torch.zeros(9, dtype=kind)", "x[i] = 1.0"),
        ("x = torch.zeros(9, requires_grad=True)", "x[i] = 1.0"),
        ("x = torch.zeros_like(y)", "x[i] = 1.0"),
        ("x = torch.zeros(9)", "x[i] += 0.1"),
        ("x = torch.zeros(9)", "x[i] = [1.0, 2.0]"),
        ("x = torch.zeros(9)", "x[i] = cell"),  # "7" is an error of torch's, and a number of NumPy's
        ("x = torch.zeros(9)", "x[i] = net(i).squeeze()"),
        ("x = torch.zeros(9)", "x[i] = 255"),
        ("x = torch.zeros(9, dtype=torch.long)", "x[i] = float(cell)"),  # of what is no number
        ("x = torch.full((9,), 7)", "x[i] = float(cell)"),
        ("x = torch.zeros(9, 9)", "x[i, :, [1, 2]] = 1.0"),
        ("x = torch.zeros(9)\n    x = x.cuda()", "x[i] = 1.0"),
        ("x = torch.zeros(9)", "x[i] = 1.0; x.share_memory_()"),
        ("x = torch.zeros(9)", "x[i] = 1.0; queue.put(x)"),
        ("x = torch.zeros(9, 9)", "x[0, i] = 1.0; x.t_()"),
        ("x = y.zeros(9)", "x[i] = 1.0"),
        ("try:\n        z = 1\n    except RuntimeError:\n        pass\n    x = torch.zeros(9)", "x[i] = 1.0"),
        ("if y:\n        x = torch.zeros(9)", "x[i] = 1.0"),
    ],
)
def test_what_an_array_may_not_share_or_round_alike_is_left(tmp_path, made, write):
    after, left = written(tmp_path, f"def f(y):\n    {made}\n    for i in y:\n        {write}  # <<\n    return x\n")
    assert after == ""
    assert "are not found" in left


def test_a_write_outside_of_loops_is_left(tmp_path):
    after, _ = written(tmp_path, "def f(y):\n    x = torch.zeros(9)\n    x[3] = 1.0  # <<\n    return x\n")
    assert after == ""


METER = """
class Meter:
    def __init__(self, k):
        self.matrix = torch.zeros(k, k, dtype=torch.long)

    def update(self, pred, target):
        for t, p in zip(target.view(-1), pred.view(-1)):
            self.matrix[t, p] += 1  # <<
"""


def test_an_attribute_is_written_through_its_array_and_elements_are_numbers(tmp_path):
    after, left = written(tmp_path, METER)
    assert left == ""
    assert "        array_of_matrix = self.matrix.numpy()  # the same memory\n        for t, p in" in after
    assert "zip((elements_of_target.tolist() if isinstance((elements_of_target := target.view(-1))," in after
    assert "            array_of_matrix[t, p] += 1" in after
    found = []
    for code in (METER, after):
        meter = names_of(code)["Meter"](4)
        torch.manual_seed(0)
        for _ in range(3):
            meter.update(torch.randint(4, (5, 6)), torch.randint(4, (5, 6)))
        found.append(meter.matrix)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "more",
    [
        "            self.reset()\n",
        "            reset(self)\n",
        "\ndef run(meter):\n    meter.matrix = meter.matrix.cuda()\n",
        "            self.matrix = self.matrix * 2\n",
        "            self.matrix.resize_(9, 9)\n",
        "\n    def to(self, device):\n        self.matrix = self.matrix.to(device)\n",
    ],
)
def test_an_attribute_that_may_be_another_tensor_meanwhile_is_left(tmp_path, more):
    after, _ = written(tmp_path, METER + more)
    assert "array_of_matrix" not in after
