"""Evaluations in a training step, put under `torch.no_grad()`."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nfrom torch.nn import functional as F\n"
LOOP = """\
for x, y in loader:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
"""


def evaluated(folder, *lines, before="", with_grad=1):
    text = HEAD + before + LOOP + "".join(f"    {line}\n" for line in lines)
    return edited(folder, "not-recorded", text, with_grad=with_grad)


@pytest.mark.parametrize(
    "line", ["out = model(test_x)", "test_loss = F.mse_loss(model(test_x), test_y).item()", "total += model(z).sum()",
             "print(model(test_x).mean().item())"]
)  # fmt: skip
def test_a_line_gets_a_block_of_its_own(tmp_path, line):
    after, left = evaluated(tmp_path, line + "  # <<", "log(1)")
    assert left == ""
    assert after == HEAD + LOOP + f"    with torch.no_grad():\n        {line}\n    log(1)\n"


def test_a_function_that_evaluates_gets_a_decorator(tmp_path):
    before = "def check(model, x):\n    return model(x).mean().item()\n"
    after, _ = evaluated(tmp_path, "print(check(model, test_x))  # <<", before=before)
    assert after == f"{HEAD}@torch.no_grad()\n{before}{LOOP}    print(check(model, test_x))\n"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["a = model(z)  # <<", "(a - b).sum().backward()"], "may come to a backward pass"),
        (["loss = model(z)  # <<", "g = torch.autograd.grad(loss, z)"], "may come to a backward pass"),
        (["model(z).sum().backward()  # <<"], "makes a backward pass, too"),
        (["if flag:  # <<", "    show(model(z))"], "no line that binds or calls something"),
    ],
)
def test_what_may_be_trained_on_is_left(tmp_path, lines, reason):
    after, left = evaluated(tmp_path, *lines)
    assert after == ""
    assert reason in left


def test_what_a_function_returns_is_left(tmp_path):
    lines = [
        "def step(x, y):",
        "    loss = model(x)",
        "    loss.backward()",
        "    extra = model(y)  # <<",
        "    return extra",
    ]
    text = HEAD + "\n".join(lines) + "\n"
    assert "returns what it computes" in edited(tmp_path, "not-recorded", text, with_grad=1)[1]


def test_a_model_that_takes_derivatives_is_left(tmp_path):
    before = "class H:\n    def forward(self, x):\n        return torch.autograd.grad(self.e(x).sum(), x)\n"
    assert "takes a derivative" in evaluated(tmp_path, "out = model(test_x)  # <<", before=before)[1]


@pytest.mark.parametrize(
    "lines",
    [
        ["held['aux'] = model(z)  # <<", "opt.zero_grad()", "learn(held)"],
        ["print(model(z))  # <<"],
        ["print((aux := model(z)).item())  # <<", "step(aux)"],
        ["value = model(z).mean()  # <<", "text = str(value)"],
        ["value = model(z).mean()  # <<", "assert value.requires_grad"],
        ["value = model(z).mean()  # <<", "later = lambda: value"],
    ],
)
def test_more_than_numbers_of_it_are_read(tmp_path, lines):
    after, left = evaluated(tmp_path, *lines, before="held = {}\n")
    assert after == ""
    assert "may do more than to read its numbers" in left


def test_a_list_of_the_caller_s_is_not_followed(tmp_path):
    before = "def note(out, z):\n    out.append(model(z).mean())  # <<\n"
    text = HEAD + before + LOOP + "    found = []\n    note(found, x)\n    torch.stack(found).sum().backward()\n"
    after, left = edited(tmp_path, "not-recorded", text, with_grad=1)
    assert after == ""
    assert "`out` may do more" in left


def test_a_forward_that_keeps_something_is_left(tmp_path):
    before = (
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        self.h = self.a(x)\n        return self.h\n"
    )
    after, left = evaluated(tmp_path, "hits = (model(z) > 0).sum().item()  # <<", before=before)
    assert after == ""
    assert "forward() keeps self.h" in left


def test_what_records_nothing_is_there(tmp_path):
    assert evaluated(tmp_path, "out = model(test_x)  # <<", with_grad=0) == ("", "there")
    assert evaluated(tmp_path, "with torch.no_grad():", "    out = model(test_x)  # <<") == ("", "there")


def test_every_bit_of_the_weights_is_the_same(tmp_path):
    text = f"""\
{HEAD}
torch.manual_seed(3)
model = torch.nn.Linear(6, 4)
opt = torch.optim.Adam(model.parameters(), lr=0.05)
seen = torch.zeros(())
for _ in range(9):
    x, z = torch.randn(8, 6), torch.randn(8, 6)
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
    seen += model(z).square().mean()  # <<
"""
    after, _ = edited(tmp_path, "not-recorded", text, with_grad=1)
    assert "    with torch.no_grad():\n        seen += " in after
    same_results(text.replace("seen += model(z)", "seen = seen + model(z)"), after, "model", "seen")
