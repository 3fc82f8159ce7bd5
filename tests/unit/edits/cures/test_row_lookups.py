"""Parts of a tensor in forms with cheap gradients: rows by `index_select`, slices by one `unbind`."""

import pytest
from tests.unit.edits.scripts import edited, same_results


def rows(folder, text, node="IndexBackward0"):
    return edited(folder, "rows", text, node=node)


def cut(folder, text, node="SelectBackward0"):
    return edited(folder, "unbind", text, node=node)


def test_rows_are_selected_with_negative_ones_counted_from_the_end(tmp_path):
    after, left = rows(tmp_path, "import torch\nh = self.nodes[self.src] + 1  # <<\n")
    assert left == ""
    wrapped = "rows.where(rows >= 0, rows + x.size(0))"
    by_number = f"x.index_select(0, {wrapped}.flatten()).unflatten(0, rows.shape)"
    assert after.startswith(f"import torch\nh = (lambda x, rows: {by_number} if type(x) in (")
    assert after.endswith(" and rows.device == x.device else x[rows])(self.nodes, self.src) + 1\n")


HOSTILE = {
    "what is no tensor": (
        "class Bag:\n    def __getitem__(self, key):\n        return key\n"
        "def look(bag, name):\n    return bag[name]  # <<\n"
        "found = [look(x, torch.tensor([2, -1])), look(x, [1]), look(x, (1, 0)), look(x, slice(1)), look(x, ...)]\n"
        "found += [torch.tensor(look({7: 3.0}, 7)), torch.tensor(look(Bag(), 5)), torch.tensor(look(np.ones(9), 4))]\n"
    ),
    "one row, which is a view": (
        "for r in torch.tensor([1, 4, 1]):\n    h = x[r]  # <<\n    h.mul_(10)\nfound = [x]\n"
    ),
    "attributes that are computed anew": (
        "class Sampler:\n    drawn = 0\n    @property\n    def rows(self):\n        Sampler.drawn += 1\n"
        "        return torch.randint(6, (2,))\ns = Sampler()\nh = x[s.rows]  # <<\n"
        "found = [h, torch.rand(2), torch.tensor(Sampler.drawn)]\n"
    ),
    "a class of tensors": (
        "class Wrapped(torch.Tensor):\n    def __getitem__(self, key):\n        return torch.zeros(3)\n"
        "w, r = x.as_subclass(Wrapped), torch.tensor([1])\nh = w[r]  # <<\nfound = [h]\n"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_of_other_things_are_picked_as_they_were(tmp_path, name):
    text = "import torch\nimport numpy as np\nx = torch.arange(12.0).view(6, 2)\n" + HOSTILE[name]
    after, left = rows(tmp_path, text)
    assert left == ""
    same_results(text, after, "found")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import torch.fx\ndef f(x, r):\n    return x[r]  # <<\n", "what is traced"),
        ("import torch\ndef f(x, type):\n    return x[type]  # <<\n", "a name of Python's own"),
        ("import torch\nclass A:\n    h = x[r]  # <<\n", "in the body of a class"),
        ("import torch\nh = f'{x[r]}'  # <<\n", "in an f-string"),
    ],
)
def test_rows_are_left_where_nothing_can_be_asked(tmp_path, text, reason):
    after, left = rows(tmp_path, text)
    assert after == ""
    assert reason in left


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
    text = (
        "import torch\nclass Net:\n    def __init__(self):\n        self.cell = torch.nn.GRUCell(2, 3)\n"
        "    def f(self, x):\n        for t in range(n):\n            h = self.cell(x[:, t], h)  # <<\n"
    )
    after, left = cut(tmp_path, text)
    assert left == ""
    assert (
        "        x_parts = []\n        for t in range(n):\n            h = self.cell((lambda x, t: made[2][t] if "
        in after
    )
    assert (
        "(x_parts or [x_parts.append((x, (x._version, x.data_ptr()), x.unbind(1)))] and x_parts)[0])[0] is x" in after
    )
    assert after.endswith(" and made[1] == (x._version, x.data_ptr()) else x[:, t])(x, t), h)\n")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "for t in range(1, n):\n    h = f(self.x[t] * self.x[t - 1])  # <<\n",
            ["x[t])(self.x, t)", "(self.x, t - 1)"],
        ),
        ("hs = [2 * x[:, :, t] for t in range(n)]  # <<\n", ["x.unbind(2)", "x_parts = []\nhs = ["]),
        (
            "for t in range(n):\n    if t:\n        h = x[:, t, :] + h  # <<\n",
            ["x.unbind(1)", "else x[:, t, :])(x, t) + h"],
        ),
        ("x_parts = 1\nfor t in range(n):\n    h = -x[t]  # <<\n", ["x_parts_2 = []"]),
    ],
)
def test_dimensions_neighbours_and_comprehensions_are_understood(tmp_path, text, parts):
    after, left = cut(tmp_path, f"import torch\n{text}")
    assert left == ""
    assert all(part in after for part in parts)


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


MEANWHILE = {
    "an optimizer": """
w = torch.nn.Parameter(torch.ones(3, 2))
sgd = torch.optim.SGD([w], lr=0.5)
for t in range(3):
    loss = (w[t] * 2).sum()  # <<
    sgd.zero_grad()
    loss.backward()
    sgd.step()
found = [w]
""",
    "a method that sets it": """
class Field:
    def __init__(self):
        self.grid = torch.ones(2, 4, requires_grad=True)
    def move(self):
        self.grid = self.grid * 3
    def run(self):
        total = 0
        for t in range(4):
            total = total + self.grid[:, t]  # <<
            self.move()
        return total
found = [Field().run()]
""",
    "a write by another name": """
base = torch.ones(3, 2, requires_grad=True)
x = base * 1
rows = x.view(6)
out = 0
for t in range(3):
    out = out + (x[t] * 3).sum()  # <<
    rows.mul_(2)
out.backward()
found = [out, base.grad]
""",
    "data that is replaced": """
w = torch.nn.Parameter(torch.ones(3, 2))
out = 0
for t in range(3):
    out = out + w[t] * 1  # <<
    for p in [w]:
        p.data = p.data + 1
found = [out]
""",
    "no tensor, and no turns": """
def total(x, n):
    out = 0
    for t in range(n):
        out = out + x[t] * 2  # <<
    return torch.as_tensor(out)
x = torch.ones(3, 2, requires_grad=True)
found = [total(x, 3), total([1, 2, 3], 3), total(None, 0), total({0: 5.0}, 1), total(x.detach().numpy(), 2)]
""",
    "an index that is no number": """
x = torch.arange(12.0).view(2, 6).requires_grad_()
found = []
for t in range(6):
    if t > 3:
        t = slice(t - 2, t)
    found += [(x[:, t] + 1).flatten().sum()]  # <<
""",
    "no gradients for a while": """
x = torch.ones(4, 2, requires_grad=True)
flags = []
for t in range(4):
    with torch.set_grad_enabled(t % 2 == 0):
        y = x[t] * 2  # <<
        flags.append(float(y.requires_grad))
found = [torch.tensor(flags)]
""",
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_parts_of_a_tensor_that_changes_meanwhile_are_those_of_the_turn(tmp_path, name):
    text = "import torch\n" + MEANWHILE[name]
    after, left = cut(tmp_path, text)
    assert left == ""
    same_results(text, after, "found", exact=False)


@pytest.mark.parametrize(
    "line",
    [
        "h = x[:, t]  # <<\n    h += 1",
        "h = x[:, t]  # <<\n    kept.append(h)",
        "h = torch.relu_(x[:, t])  # <<",
        "h = x[:, t]  # <<\n    h.register_hook(f)",
        "h = x[:, t].unsqueeze(1)  # <<\n    h.requires_grad_()",
        "h = f(x[:, t])  # <<",
        "h = shift(x[:, t])  # <<",
        "h = act(x[:, t])  # <<",
        "show(x[:, t])  # <<",
        "h = torch.add(x[:, t], 1, out=y)  # <<",
        "h = F.relu(x[:, t], True)  # <<",
    ],
)
def test_parts_that_somebody_may_write_to_or_keep_are_left(tmp_path, line):
    head = "import torch\nimport torch.nn.functional as F\ndef shift(v):\n    v -= v.mean()\n    return v\n"
    head += "act = torch.nn.ReLU(inplace=True)\n"
    after, left = cut(tmp_path, f"{head}for t in range(3):\n    {line}\n")
    assert after == ""
    assert "may be written to, kept" in left
