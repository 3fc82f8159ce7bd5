"""Batches made in one call: one array of many before the tensor, and `pad_sequence` for a loop that fills rows."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nimport numpy as np\n"


def stacked(folder, text):
    return edited(folder, "one-array", HEAD + text)


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        (
            "y = torch.tensor([np.asarray(x) for x, _ in batch], dtype=torch.float32)  # <<\n",
            "y = torch.tensor((lambda rows: np.stack(rows) if type(rows) is list and rows and all(",
            " else rows)([np.asarray(x) for x, _ in batch]), dtype=torch.float32)",
        ),
        (
            "def f(batch):\n    rows = []\n    for x in batch:\n        rows.append(np.pad(x, 3))\n"
            "    return torch.tensor(rows)  # <<\n",
            "    return torch.tensor((lambda rows: np.stack(rows) if ",
            " else rows)(rows))",
        ),
        (
            "y = torch.as_tensor([a.numpy(), b.numpy()])  # <<\n",
            "y = torch.as_tensor((lambda",
            "([a.numpy(), b.numpy()]))",
        ),
        ("rows = [np.zeros(3) for _ in x]\ny = torch.tensor(rows)  # <<\n", "y = torch.tensor((lambda", "(rows))"),
    ],
)
def test_a_list_of_arrays_is_one_array_first(tmp_path, text, begins, ends):
    after, left = stacked(tmp_path, text)
    assert left == ""
    assert any(line.startswith(begins) and line.endswith(ends) for line in after.split("\n"))


def test_numpy_goes_by_the_name_that_the_file_has_for_it(tmp_path):
    text = "import torch\ny = torch.tensor([a.numpy() for a in x])  # <<\n"
    after, _ = edited(tmp_path, "one-array", text)
    assert "import numpy\n" in after
    assert "numpy.stack(rows) if " in after
    inner = (
        "import torch\ndef f():\n    import numpy as np\n"
        "    return np\ny = torch.tensor([a.numpy() for a in x])  # <<\n"
    )
    assert "numpy.stack(rows) if " in edited(tmp_path, "one-array", inner)[0]


ODD = {
    "none": ("def make(items):\n    return torch.tensor([np.array(x) for x in items])  # <<\n"
        "found = [make([]), make([[1, 2]])]\n"),
    "of several types": "found = [torch.tensor([np.zeros(2, int), np.ones(2).astype('float32')])]  # <<\n",
    "some of them lists": (
        "def make(more):\n    rows = []\n    rows.append(np.zeros(2, np.float32))\n    rows.extend(more)\n"
        "    return torch.tensor(rows)  # <<\nfound = [make([]), make([[1.5, 2.5]]), make([[1, 2]])]\n"
    ),
    "numbers that do not fit": (
        "def make(a):\n    try:\n        return torch.tensor([a.astype(float)], dtype=torch.long)  # <<\n"
        "    except (RuntimeError, ValueError):\n        return torch.zeros(0)\n"
        "found = [make(np.ones(2)), make(np.array([np.nan])), make(np.array([1e30]))]\n"
    ),
    "rounded twice": ("a = np.array([2**60 + 2**36 + 1])\n"
        "found = [torch.tensor([np.array(a)], dtype=torch.float32)]  # <<\n"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("name", ODD)
def test_lists_that_are_no_list_of_like_arrays_are_taken_number_by_number(tmp_path, name):
    after, left = edited(tmp_path, "one-array", HEAD + ODD[name])
    assert left == ""
    same_results(HEAD + ODD[name], after, "found")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = torch.tensor([x for x, _ in batch])  # <<\n", "may not be a list of arrays"),
        ("y = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # <<\n", "may not be a list of arrays"),
        ("rows = f()\ny = torch.tensor(rows)  # <<\n", "may not be a list of arrays"),
        ("rows = []\nrows.append(np.zeros(3))\nrows.append(4)\ny = torch.tensor(rows)  # <<\n", "may not be a list"),
        ("y = torch.tensor([np.float32(x) for x in b])  # <<\n", "may not be a list of arrays"),
        ("y = torch.tensor([np.zeros(3)], requires_grad=True)  # <<\n", "more than values, dtype and device"),
        ("y = torch.stack([np.zeros(3)])  # <<\n", "is not found on this line"),
        ("y = torch.tensor([np.zeros(3)], dtype=torch.uint8)  # <<\n", "go another way"),
        ("y = torch.tensor([np.zeros(3)], dtype=self.dtype)  # <<\n", "go another way"),
    ],
)
def test_what_may_be_other_values_is_left(tmp_path, text, reason):
    after, left = stacked(tmp_path, text)
    assert after == ""
    assert reason in left


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int16", "uint8", "bool"])
def test_the_tensor_is_the_same_to_the_bit(tmp_path, kind):
    text = f"{HEAD}found = torch.tensor([np.array([i, 2.5 * i, i]).astype(np.{kind}) for i in range(5)])  # <<\n"
    same_results(text, edited(tmp_path, "one-array", text)[0], "found")


PADDED = """\
import torch
def collate(batch):
    longest = max(len(s) for s in batch)
    out = torch.full((len(batch), longest), -1, dtype=torch.long)
    for i, s in enumerate(batch):
        out[i, : len(s)] = torch.tensor(s)  # <<
    return out
found = collate([[1, 2, 3], [4], [5, 6]])
"""


def padded(folder, text):
    return edited(folder, "pad-sequence", text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("torch.full((len(batch), longest), -1, dtype=torch.long)", "torch.zeros(len(batch), longest)"),
        ("max(len(s) for s in batch)", "max(map(len, batch))"),
        ("longest), -1", "max(len(s) for s in batch)), -1"),
        ("torch.tensor(s)", "torch.as_tensor(s)"),
    ],
)
def test_a_loop_that_fills_rows_is_one_call(tmp_path, old, new):
    text = PADDED.replace(old, new, 1)
    after, left = padded(tmp_path, text)
    assert left == ""
    assert (
        "    out = torch.nn.utils.rnn.pad_sequence([each.to(out.dtype) for each in rows_of_out], batch_first=True"
        in after
    )
    assert "    else:\n        for i, s in enumerate(batch):\n            out[i, : len(s)] = " in after
    same_results(text, after, "found")


TIMES = """\
import torch
def stack(series, width=0):
    if not width:
        width = max(s.shape[0] for s in series)
    series = [s[:4] for s in series]
    grid = torch.zeros((len(series), width))
    for row, s in enumerate(series):
        grid[row, :s.shape[0]] = s  # <<
    return grid
def tried(*given):
    try:
        return stack(*given)
    except (RuntimeError, IndexError) as error:
        return torch.full((len(type(error).__name__),), 7.0)
a, b = torch.arange(3.0), torch.arange(6.0)
"""


@pytest.mark.parametrize(
    "found",
    [
        "[stack([a, a + 1])]",
        "[stack([a, b])]",  # rows are cut after their lengths were asked for
        "[stack([a], 5), stack([a, b], 9)]",
        "[tried([a.view(3, 1)]), tried([a.view(1, 3)]), tried([torch.ones(1, 1)])]",
        "[stack([a.long(), b.double()]), stack([a > 1])]",
        "[stack([a[:0], a[:0]], 2)]",
    ],
)
def test_rows_that_do_not_fill_the_tensor_are_put_in_one_by_one(tmp_path, found):
    text = f"{TIMES}found = {found}\n"
    after, left = padded(tmp_path, text)
    assert left == ""
    assert "pad_sequence(" in after
    same_results(text, after, "found")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("max(len(s) for s in batch)", "64", "wider ones"),
        ("max(len(s) for s in batch)", "max(len(s) for s in batch if s)", "wider ones"),
        ("(len(batch), longest)", "(8, longest)", "more rows"),
        ("torch.tensor(s)", "1", "is not found here"),
        ("torch.tensor(s)", "torch.tensor(s)\n        n += 1", "is not found here"),
        (": len(s)] =", "1 : len(s) + 1] =", "is not found here"),
        ("in enumerate(batch)", "in enumerate(batch, 1)", "is not found here"),
        ("    for i", "    print(out)\n    for i", "no line above the loop makes out"),
        (
            "torch.full((len(batch), longest), -1, dtype=torch.long)",
            "torch.empty(len(batch), longest)",
            "no line above",
        ),
        ("-1, dtype=torch.long", "-1", "no line above"),
        ("-1, dtype=torch.long", "-1, dtype=torch.uint8", "no line above"),  # 255, or an error
        ("-1, dtype=torch.long", "2**60, dtype=torch.long", "no line above"),
        ("    return out", "    print(i, s)\n    return out", "are read elsewhere"),
        ("    return out", "    return lambda: s", "are read elsewhere"),
    ],
)
def test_other_loops_are_left(tmp_path, old, new, reason):
    after, left = padded(tmp_path, PADDED.replace(old, new, 1))
    assert after == ""
    assert reason in left
