"""Numbers written into a tensor one by one: through its NumPy view, with the same bits, or left with a reason."""

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.cures.elements.running import HEAD, edited_elements, is_edited_alike

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

MOTIFS = """
CODES = {base: number for number, base in enumerate("ACGT")}


def place_of(word):
    number = 0
    for base in word:
        number = number * 4 + CODES[base]
    return number


def counted(text, k):
    counts = torch.zeros(4**k)
    for start in range(len(text) - k + 1):
        counts[place_of(text[start : start + k])] += 1  # <<
    return counts
"""

COLLATE = """
def put_together(rows):
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), 7, dtype=torch.long), None
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    there = torch.zeros(len(rows), longest, dtype=torch.bool)
    seen = torch.zeros(9, dtype=torch.int32)
    for r, words in enumerate(rows):
        c = 0
        while c < len(words):
            mask[r, c] = True  # <<
            there[r, c] = True
            seen[words[c]] += 1
            c += 1
    return mask, there, seen
"""

MEASURED = """
def values(tests):
    made = torch.full((6,), -1.5, dtype=torch.float64)
    for name, value in enumerate(tests):
        made[name] = float(value)  # <<
        if name == 3:
            made[name] = -0.1
    return made * 2
"""


def names_of(text):
    names = {}
    exec(text.replace("  # <<", ""), names)
    return names


def test_in_a_function_that_the_line_calls(tmp_path):
    after, left = edited_elements(tmp_path, ONE_HOT)
    assert left == ""
    assert "        array_of_x = x\n        if (\n            type(array_of_x) is torch.Tensor and" in after
    assert "            array_of_x = array_of_x.numpy()  # the same memory\n        for at" in after
    assert '                array_of_x["ACGT".index(base), at] = 1.0\n        return x\n' in after


@settings(max_examples=50)
@given(st.text("ACGTN", min_size=1, max_size=30))
def test_the_same_ones(tmp_path_factory, text):
    after, _ = edited_elements(tmp_path_factory.mktemp("genes"), ONE_HOT)
    plain, ours = (names_of(code)["Genes"]().one_hot(text) for code in (HEAD + ONE_HOT, after))
    assert torch.equal(plain, ours) and plain.dtype == ours.dtype


def test_places_from_a_table_and_from_a_function_of_the_user_s(tmp_path):
    after, left = edited_elements(tmp_path, MOTIFS)
    assert left == ""
    assert "array_of_counts[place_of(text[start : start + k])] += 1" in after
    plain, ours = (names_of(code)["counted"]("ACGTTACGACGT", 2) for code in (HEAD + MOTIFS, after))
    assert torch.equal(plain, ours) and plain.sum() == 11


def test_each_tensor_that_is_bound_once_and_written_by_whole_numbers_gets_its_array(tmp_path):
    after, left = edited_elements(tmp_path, COLLATE)
    assert left == ""
    assert "array_of_there[r, c] = True" in after
    assert "            mask[r, c] = True" in after, "it is bound twice"
    assert "            seen[words[c]] += 1" in after, "words may be masks"
    rows = [[1, 2, 8], [3], [], [8, 8]]
    plain, ours = (names_of(code)["put_together"](rows) for code in (HEAD + COLLATE, after))
    assert all(map(torch.equal, plain, ours))


@settings(max_examples=100)
@given(st.lists(st.floats(width=64, allow_infinity=True), max_size=7))
def test_numbers_are_converted_as_torch_does(tmp_path_factory, tests):
    after, left = edited_elements(tmp_path_factory.mktemp("values"), MEASURED)
    assert left == ""
    found = []
    for code in (HEAD + MEASURED, after):
        with numpy.errstate(all="ignore"):
            try:
                found.append(names_of(code)["values"](tests).numpy().tobytes())
            except IndexError as error:  # seven of them have no room in six
                found.append(type(error))
    assert found[0] == found[1]


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
        ("x = torch.zeros(9)", "x[i] = 1e39"),  # torch raises
        ("x = torch.zeros(9)", "x[i] = 1e-45"),  # NumPy may warn
        ("x = torch.zeros(9, dtype=torch.float32)", "x[i] = float(cell)"),  # torch raises beyond float32
        ("x = torch.zeros(9, dtype=torch.long)", "x[i] = float(cell)"),  # of what is no number
        ("x = torch.zeros(9, dtype=torch.int8)", "x[i] = 200.5"),
        ("x = torch.zeros(9, dtype=torch.uint8)", "x[i] = -1.5"),
        ("x = torch.zeros(9, dtype=torch.uint8)", "x[i] -= 1"),  # NumPy warns, torch does not
        ("x = torch.zeros(9, dtype=torch.bool)", "x[i] += 1"),  # torch raises
        ("x = torch.zeros(9, 9)", "x[i, :, [1, 2]] = 1.0"),
        ("x = torch.zeros(9)\n    x = x.cuda()", "x[i] = 1.0"),
        ("x = torch.zeros(9)", "x[i] = 1.0; x.share_memory_()"),
        ("x = torch.zeros(9)", "x[i] = 1.0; queue.put(x)"),
        ("x = torch.zeros(9, 9)", "x[0, i] = 1.0; x.t_()"),
        ("x = torch.zeros(9)", "x[i] = 1.0; x[0] = w[i]"),  # of what is trained
        ("x = torch.zeros(9)\n    total = x * w", "x[i] = 1.0"),  # which autograd keeps
        ("x = y.zeros(9)", "x[i] = 1.0"),
        (
            "try:\n        z = 1\n    except RuntimeError:\n        pass\n    if y:\n        x = torch.zeros(9)",
            "x[i] = 1.0",
        ),
        ("if y:\n        x = torch.zeros(9)", "x[i] = 1.0"),
    ],
)
def test_what_an_array_may_not_share_or_round_alike_is_left(tmp_path, made, write):
    text = "def f(y, w):\n    {}\n    for i in {}:\n        {}  # <<\n    return x\n"
    after, left = edited_elements(tmp_path, text.format(made, "range(y)", write))
    assert after == ""
    assert "are not found" in left or "memory" in left


PLACES = """
def f(places):
    x = torch.zeros(3, 3)
    for place in places:
        x[place] = 1.0  # <<
    return x
print(f({}).tolist())
"""


@pytest.mark.parametrize(
    "places",
    [
        "[[[0, 1], [1, 2]]]",
        "np.array([[0, 0, 1]], dtype=np.uint8)",
        "np.array([True, False])",
        "[True]",
        "[slice(None, None, -1)]",
        "torch.tensor([2, 0, 1], dtype=torch.uint8)",
        "torch.tensor([True, False, True])",
        "torch.tensor([[0, 1], [1, 2]])",
        "torch.tensor([2, 0, -1])",
        "torch.tensor([2, 3, 0])",
    ],
)
def test_places_are_asked_whether_they_are_elements_that_mean_the_same(tmp_path, places):
    assert is_edited_alike(tmp_path, PLACES.format(places))


def test_places_that_cannot_be_asked_are_left(tmp_path):
    after, _ = edited_elements(tmp_path, PLACES.replace("in places", "in iter(places)"))
    assert after == ""
    assert edited_elements(tmp_path, PLACES.replace("in places", "in range(len(places))"))[0]


def test_a_write_outside_of_loops_is_left(tmp_path):
    after, _ = edited_elements(tmp_path, "def f(y):\n    x = torch.zeros(9)\n    x[3] = 1.0  # <<\n    return x\n")
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
    after, left = edited_elements(tmp_path, METER)
    assert left == ""
    assert "        elements_of_target = target.view(-1)\n        elements_of_pred = pred.view(-1)\n" in after
    assert "            elements_of_pred = elements_of_pred.numpy()\n            if (\n" in after
    assert "            array_of_matrix[t, p] += 1" in after
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        found = []
        for code in (HEAD + METER, after):
            meter = names_of(code)["Meter"](4)
            torch.manual_seed(0)
            for _ in range(3):
                meter.update(torch.randint(4, (5, 6)).to(dtype), torch.randint(4, (5, 6)).to(dtype))
            found.append(meter.matrix)
        assert torch.equal(*found), dtype


@pytest.mark.parametrize(
    "more",
    [
        "            self.reset()\n",
        "            reset(self)\n",
        "\ndef run(meter):\n    meter.matrix = meter.matrix.cuda()\n",
        "            self.matrix = self.matrix * 2\n",
        "            self.matrix.resize_(9, 9)\n",
        "\n    def to(self, device):\n        self.matrix = self.matrix.to(device)\n",
        "\n    def get(self):\n        return self.matrix\n",
        "\n    def loss(self, w):\n        return (self.matrix * w).sum()\n",
        "\n    def rows(self):\n        return [self.matrix[0]]\n",
        '\n    def keep(self):\n        setattr(self, "matrix", None)\n',
        "\nclass Other(Meter):\n    matrix = property(lambda self: torch.ones(3))\n",
    ],
)
def test_an_attribute_that_may_be_another_tensor_meanwhile_is_left(tmp_path, more):
    after, _ = edited_elements(tmp_path, METER + more)
    assert "array_of_matrix" not in after


SHOWN = "m = Meter(3)\nm.update(torch.tensor([0, 9, 1]), torch.tensor([1, 1, 1]))\nprint(m.matrix.tolist())\n"
SCRIPTS = {
    "a place that is found by the user's code, behind an element": (
        False,
        """
def place(word):
    A.add_(1)
    return int(word)
def f(a):
    x = torch.zeros(3, 3)
    for t in a.view(-1):
        x[t, place(0)] = 1.0  # <<
    return x
A = torch.zeros(2, dtype=torch.int64)
print(f(A).tolist())
""",
    ),
    "half precision by default": (
        True,
        """
torch.set_default_dtype(torch.float16)
def f(n):
    x = torch.zeros(n)
    for i in range(n):
        x[i] = 0.1  # <<
    return x
try:
    print(f(3).tolist())
finally:
    torch.set_default_dtype(torch.float32)
""",
    ),
    "on no device": (
        True,
        """
def f(n):
    x = torch.zeros(3)
    for i in range(n):
        x[i] = 1.0  # <<
    return x
with torch.device("meta"):
    print(f(2).device)
""",
    ),
    "trained items": (
        False,
        """
def f(w):
    x = torch.zeros(4)
    for i in range(4):
        x[i] = w[i] * 2
        if i % 2:
            x[i] = 0.5  # <<
    return x
w = torch.ones(4, requires_grad=True)
f(w).sum().backward()
print(w.grad.tolist())
""",
    ),
    "other memory": (
        False,
        """
def f(n):
    x = torch.zeros(n)
    for i in range(n):
        x[i] = 1.0  # <<
        x.data = x * 2
    return x
print(f(3).tolist())
""",
    ),
    "bound by a pattern": (
        False,
        """
def f(commands):
    x = torch.zeros(3)
    for i, command in enumerate(commands):
        match command:
            case ("into", x):
                continue
        x[i] = 1.0  # <<
    return x
print(f([0, ("into", torch.full((3,), 5.0)), 1]).tolist())
""",
    ),
    "up a tree": (
        False,
        """
class Node:
    def __init__(self, parent=None):
        self.parent = parent
        self.count = torch.zeros(3)
    def add(self):
        while self is not None:
            self.count[1] += 1  # <<
            self = self.parent
root = Node()
leaf = Node(root)
leaf.add()
print(root.count.tolist(), leaf.count.tolist())
""",
    ),
    "an error that is caught": (
        False,
        METER + SHOWN.replace("m.update", "try:\n    m.update").replace("\nprint", "\nexcept IndexError:\n    print"),
    ),
    "an error that is not": (True, METER + SHOWN),
    "labels that are the matrix": (
        False,
        METER + "m = Meter(3)\nm.update(m.matrix, m.matrix)\nprint(m.matrix.tolist())\n",
    ),
    "traced": (
        False,
        """
class Net(torch.nn.Module):
    def forward(self, x):
        mask = torch.zeros(3)
        for i in range(2):
            mask[i] = 1.0  # <<
        return mask * x
print(torch.jit.trace(Net(), torch.ones(3), check_trace=False)(torch.ones(3)).tolist())
""",
    ),
    "made larger afterwards": (
        False,
        """
def f(n):
    x = torch.zeros(n)
    for i in range(n):
        x[i] = 1.0  # <<
    return x
print(f(3).resize_(3).tolist())
""",
    ),
    "written in no mode of inference": (
        True,
        METER + "with torch.inference_mode():\n    m = Meter(3)\n"
        "m.update(torch.tensor([0]), torch.tensor([1]))\nprint(m.matrix.tolist())\n",
    ),
    "counts that stop at 2**24": (
        True,
        METER.replace("torch.zeros(k, k, dtype=torch.long)", "torch.full((k, k), 16777215.0)")
        + "m = Meter(2)\nm.update(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 1]))\nprint(m.matrix.tolist())\n",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_do_the_same_or_are_left(tmp_path, name):
    is_edited, text = SCRIPTS[name]
    assert is_edited_alike(tmp_path, text) == is_edited
