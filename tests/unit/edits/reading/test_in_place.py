"""What statements change in place, by the names in them."""

import ast

import pytest

from flatout.edits.reading.in_place import changed_in_place, is_in_place


@pytest.mark.parametrize(
    "line",
    [
        "x += 1", "x[0] = 1", "x[0][1] += 2", "del x[0]", "x.add_(1)", "x.view(-1).mul_(2)", "torch.relu_(x)",
        "F.relu(x, inplace=True)", "torch.add(a, b, out=x)", "x.data = y",
        "nn.init.zeros_(x)", "for i in a:\n    x.zero_()",
    ],
)  # fmt: skip
def test_what_writes_into_a_tensor_is_seen(line):
    assert changed_in_place(ast.parse(line).body, "x")


@pytest.mark.parametrize(
    "line",
    [
        "x = x + 1", "y[0] = x", "y.add_(x)", "x.add(1)", "y = x.__len__()", "F.relu(x)", "torch.relu_(y)",
        "x.name = 1", "F.relu(y, inplace=True)", "torch.add(x, b, out=y)",
    ],
)  # fmt: skip
def test_what_reads_it_or_binds_its_name_is_none(line):
    assert not changed_in_place(ast.parse(line).body, "x")


def test_a_method_works_in_place_by_its_last_letter():
    assert [is_in_place(name) for name in ("add_", "add", "__len__", "_private")] == [True, False, False, False]
