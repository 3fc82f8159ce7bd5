"""Python's sum of a tensor as one operation: the same numbers and kinds, and everything else left to sum."""

import warnings

import numpy as np
import pytest
import torch
from tests.unit.edits.scripts import edited

METRICS = """\
import torch
import numpy as np

def hits(guessed, wanted):
    return sum(guessed == wanted) / len(wanted)  # <<
"""

GIVEN = [
    torch.tensor([True, False, True]),
    torch.tensor([3, -1, 2**62, 2**62]),
    torch.tensor([0.5, -0.25, -0.0]),
    torch.tensor([-0.0, -0.0]),
    torch.rand(5, 3, dtype=torch.float64),
    torch.tensor([[True, False], [True, True]]),
    torch.rand(4, 3, 2).transpose(1, 2),
    torch.ones(1, 3, 2, 2).to(memory_format=torch.channels_last),
    torch.tensor([200, 100], dtype=torch.uint8),
    torch.tensor([0.5, 2.0], dtype=torch.float16),
    torch.tensor([1.0, 2.0], requires_grad=True),
    torch.nn.Parameter(torch.ones(3)),
    torch.empty(0),
    torch.eye(3).to_sparse(),
    np.array([True, True]),
    np.array([1, 2**62]),
    np.array([0.25, 0.5]),
    np.array([0.25, 0.5], dtype=np.float32),
    np.array([1e308, 1e308, -1e308]),
    np.array([[2**62], [2**62]]),
    np.array([np.inf, -np.inf]),
    np.empty((2, 0)),
    np.array([[1, 2], [3, 4]]),
    np.array([1, "a"], dtype=object),
    np.ma.array([1, 2], mask=[True, False]),
    [1, 2.5],
    (torch.ones(2), torch.ones(2)),
    {1: 2, 3: 4},
    iter([1, 2]),
    5,
    "ab",
]


def tried(function, value):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = function(value)
        except Exception as error:
            found = type(error).__name__
    return found, [str(each.message) for each in warned]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: str(type(given)))
def test_what_comes_out_is_of_the_same_kind_and_value(tmp_path, given):
    text = "import torch\nimport numpy as np\ndef added(rows):\n    return sum(rows)  # <<\n"
    after, left = edited(tmp_path, "builtin-sum", text)
    assert left == ""
    names = {}
    exec(after, names)
    if hasattr(given, "__next__"):
        assert names["added"](iter([1, 2])) == sum(given)
        return
    (found, warned), (wanted, plainly) = tried(names["added"], given), tried(sum, given)
    assert warned == plainly
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape, found.requires_grad) == (wanted.dtype, wanted.shape, wanted.requires_grad)
        assert str(found) == str(wanted)
        assert found.stride() == wanted.stride()
    else:
        assert np.array_equal(np.asarray(found), np.asarray(wanted), equal_nan=not isinstance(wanted, str))
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)


def test_all_sums_of_the_line_go_through_one_function_behind_the_imports(tmp_path):
    after, left = edited(tmp_path, "builtin-sum", METRICS.replace("len(wanted)", "sum(wanted)"))
    assert left == ""
    head, _, body = after.partition("def hits")
    assert head.index("import numpy as np") < head.index("def added_rows(rows):")
    assert body.count("added_rows(") == 2


def test_a_function_that_the_line_calls_has_them(tmp_path):
    text = METRICS.replace("  # <<", "") + "\ndef loop():\n    acc = hits(out.argmax(1), y)  # <<\n"
    after, left = edited(tmp_path, "builtin-sum", text)
    assert left == ""
    assert "return added_rows(guessed == wanted)" in after


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntotal = sum(x for x in rows)  # <<\n",
        "import torch\ntotal = sum(rows, 3)  # <<\n",
        "import torch\nfrom operator import add as sum\ntotal = sum(rows)  # <<\n",
        "from torch import *\nimport torch\ntotal = sum(rows)  # <<\n",
        "from torch import tensor\ntotal = sum(rows)  # <<\n",
        "import torch\ndef f(rows, len):\n    return sum(rows)  # <<\n",
        "import torch\nfrom torch.jit import script\n@script\ndef f(rows: list[int]):\n    return sum(rows)  # <<\n",
        "import torch\nfrom numba import njit\n@njit\ndef f(rows):\n    return sum(rows)  # <<\n",
        "import torch\ntorch.Tensor.__iter__ = watched\ntotal = sum(rows)  # <<\n",
        "import torch\nfrom torch.overrides import TorchFunctionMode\ntotal = sum(rows)  # <<\n",
    ],
)
def test_other_sums_are_left(tmp_path, text):
    after, left = edited(tmp_path, "builtin-sum", text)
    assert (after, bool(left)) == ("", True)
