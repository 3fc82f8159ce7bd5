"""Hooks that look at gradients, made to return at once."""

import pytest
from tests.unit.edits.scripts import edited, same_results

HEAD = "import torch\nnorms = []\n"


def silent(folder, text, line):
    path = folder / "train.py"
    after, left = edited(folder, "silent-hook", HEAD + text, file=str(path.resolve()), line=line)
    return after.removeprefix(HEAD), left


def test_a_function_returns_at_once(tmp_path):
    after, left = silent(tmp_path, "def note(g):\n    norms.append(g.norm())  # <<\nw.register_hook(note)\n", 3)
    assert left == ""
    assert after == "def note(g):\n    return\n    norms.append(g.norm())\nw.register_hook(note)\n"


def test_a_docstring_stays_first_and_the_line_may_lie_in_a_function_below(tmp_path):
    text = 'def size(g):\n    return g.norm()  # <<\ndef note(g):\n    """Look."""\n    norms.append(size(g))\n'
    after, _ = silent(tmp_path, text, 5)
    assert after.endswith('def note(g):\n    """Look."""\n    return\n    norms.append(size(g))\n')


def test_a_method_with_a_decorator_and_a_lambda(tmp_path):
    text = "class Watch:\n    @torch.no_grad()\n    def note(self, g):\n        norms.append(g)  # <<\n"
    assert "        return\n        norms" in silent(tmp_path, text, 4)[0]
    after, _ = silent(tmp_path, "w.register_hook(lambda g: norms.append(g))  # <<\n", 3)
    assert after == "w.register_hook(lambda g: None)\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("def note(g):\n    norms.append(g)  # <<\n    return g * 2\n", 3, "may give a gradient back"),
        ("def note(g):\n    norms.append(g)  # <<\n", 9, "is not found"),
        ("a, b = lambda g: f(g), lambda g: h(g)  # <<\n", 3, "is not found"),
        ("def note(g): norms.append(g)  # <<\n", 3, "unplaced"),
    ],
)
def test_what_may_give_something_back_is_left(tmp_path, text, line, reason):
    after, left = silent(tmp_path, text, line)
    assert after == ""
    assert reason in left


def test_a_function_that_returns_at_once_is_there(tmp_path):
    assert silent(tmp_path, "def note(g):\n    return\n    norms.append(g)  # <<\n", 3) == ("", "there")


def test_every_bit_of_the_weights_is_the_same(tmp_path):
    text = """\
torch.manual_seed(3)
model = torch.nn.Linear(6, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def note(g):
    norms.append(g.norm().item())  # <<
for p in model.parameters():
    p.register_hook(note)
for _ in range(5):
    opt.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    opt.step()
"""
    after, _ = silent(tmp_path, text, 6)
    same_results(HEAD + text, HEAD + after, "model")
