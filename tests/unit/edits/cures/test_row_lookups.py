"""Parts of a tensor in forms with cheap gradients: rows by `index_select`, slices by one `unbind`."""

import pytest
from tests.unit.edits.scripts import edited, same_results


def rows(folder, text, node="IndexBackward0"):
    return edited(folder, "rows", text, node=node)


def cut(folder, text, node="SelectBackward0"):
    return edited(folder, "unbind", text, node=node)


def test_rows_are_selected_with_negative_ones_counted_from_the_end(tmp_path):
    after, left = rows(tmp_path, "h = self.nodes[self.src] + 1  # <<\n")
    assert left == ""
    wrapped = "self.src.where(self.src >= 0, self.src + len(self.nodes))"
    by_number = f"self.nodes.index_select(0, {wrapped}.flatten()).unflatten(0, self.src.shape)"
    assert after == f"h = ({by_number} if self.src.dtype.itemsize > 1 else self.nodes[self.src]) + 1\n"


def test_a_mask_picks_the_rows_that_it_picked(tmp_path):
    text = """\
import torch
x, r = torch.randn(6, 3, requires_grad=True), torch.tensor([True, False, True, True, False, False])
h = x[r]  # <<
h.square().sum().backward()
found = [h.detach(), x.grad]
"""
    same_results(text, rows(tmp_path, text)[0], "found", exact=False)


@pytest.mark.parametrize("shape", ["(40,)", "(4, 5)", "(2, 3, 4)"])
@pytest.mark.parametrize("of", ["(6, 3)", "(6,)", "(6, 2, 2)"])
def test_the_same_rows_and_gradients_come_out(tmp_path, shape, of):
    text = f"""\
import torch
x, r = torch.randn({of}, requires_grad=True), torch.randint(-6, 6, {shape})
h = x[r]  # <<
h.square().sum().backward()
found = [h.detach(), x.grad]
"""
    same_results(text, rows(tmp_path, text)[0], "found", exact=False)


@pytest.mark.parametrize(
    "line", ["h = x[r] + y[r]", "h = x[:, r]", "h = f(x)[r]", "h = x[0]", "h = x[r + 1]", "x[r] = h"]
)
def test_other_indices_are_left(tmp_path, line):
    after, left = rows(tmp_path, f"{line}  # <<\n")
    assert after == ""
    assert "a single index x[rows]" in left


def test_each_edit_is_of_its_own_kind_of_node(tmp_path):
    assert "not that of an index" in rows(tmp_path, "h = x[r]  # <<\n", node="SelectBackward0")[1]
    assert "not that of parts" in cut(tmp_path, "for t in range(3):\n    h = x[:, t]  # <<\n", node="IndexBackward0")[1]


def test_a_loop_over_time_cuts_its_tensor_once(tmp_path):
    text = "class Net:\n    def f(self, x):\n        for t in range(n):\n            h = self.cell(x[:, t], h)  # <<\n"
    after, _ = cut(tmp_path, text)
    assert after == (
        "class Net:\n    def f(self, x):\n        x_parts = x.unbind(1)\n        for t in range(n):\n"
        "            h = self.cell(x_parts[t], h)\n"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for t in range(1, n):\n    h = f(self.x[t], self.x[t - 1])  # <<\n", "    h = f(x_parts[t], x_parts[t - 1])"),
        ("hs = [f(x[:, :, t]) for t in range(n)]  # <<\n", "hs = [f(x_parts[t]) for t in range(n)]"),
        ("for t in range(n):\n    if t:\n        h = x[:, t, :] + h  # <<\n", "        h = x_parts[t] + h"),
        ("x_parts = 1\nfor t in range(n):\n    h = x[t]  # <<\n", "    h = x_parts_2[t]"),
    ],
)
def test_dimensions_neighbours_and_comprehensions_are_understood(tmp_path, text, line):
    assert line in cut(tmp_path, text)[0].split("\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("h = x[:, t]  # <<\n", "no loop"),
        ("for t in steps:\n    h = x[:, t]  # <<\n", "no loop"),
        ("for i in range(3):\n    def f(t):\n        return x[:, t]  # <<\n", "no loop"),
        ("for t in range(3):\n    h = x[:, t] + y[:, t]  # <<\n", "of a single tensor"),
        ("for t in range(3):\n    h = x[:, t:t + 2]  # <<\n", "of a single tensor"),
        ("for t in range(3):\n    h = x[:, t, 0]  # <<\n", "of a single tensor"),
        ("for t in range(3):\n    h = f(x)[:, t]  # <<\n", "of a single tensor"),
        ("for t in range(3):\n    h = x[:, t]  # <<\n    x[:, t] = 0\n", "x is changed in the loop"),
        ("for t in range(3):\n    x = f(x)\n    h = x[:, t]  # <<\n", "x is changed in the loop"),
        ("for t in range(3):\n    h = x[:, t]  # <<\n    x.mul_(2)\n", "x is changed in the loop"),
        ("for t in range(3):\n    h = self.x[:, t]  # <<\n    self.x = f(h)\n", "self.x is changed in the loop"),
    ],
)
def test_what_cannot_be_cut_once_is_left(tmp_path, text, reason):
    after, left = cut(tmp_path, text)
    assert after == ""
    assert reason in left


def test_the_same_values_and_gradients_come_out(tmp_path):
    text = """\
import torch
x, h = torch.randn(3, 5, 4, requires_grad=True), 0
for t in range(5):
    h = torch.tanh(x[:, t] + h)  # <<
h.sum().backward()
found = [h.detach(), x.grad]
"""
    same_results(text, cut(tmp_path, text)[0], "found", exact=False)
