"""`dynamic=True` for the call that compiles what sizes made compile again and again."""

import pytest
from tests.unit.edits.scripts import edited

HEAD = "import torch\nfrom torch import nn\n"
SIZES = "tensor 'x' size mismatch at index 0. expected 8, actual 9"
NET = "class Net(nn.Module):\n    def forward(self, x):\n        return x + 1  # <<\n"


def compiled(folder, text, reason=SIZES):
    after, left = edited(folder, "dynamic-shapes", HEAD + text, reason=reason)
    return after.removeprefix(HEAD), left


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("model = torch.compile(Net())", "model = torch.compile(Net(), dynamic=True)"),
        ("model = torch.compile(Net(), mode='default')", "model = torch.compile(Net(), mode='default', dynamic=True)"),
        ("model = torch.compile(Net(), dynamic=None)", "model = torch.compile(Net(), dynamic=True)"),
        ("model = Net()\nmodel.compile()", "model = Net()\nmodel.compile(dynamic=True)"),
    ],
)
def test_the_only_call_that_compiles_is_told(tmp_path, line, instead):
    after, left = compiled(tmp_path, f"{NET}{line}\n")
    assert (after, left) == (f"{NET.replace('  # <<', '')}{instead}\n", "")


@pytest.mark.parametrize(
    ("decorator", "instead"),
    [
        ("@torch.compile", "@torch.compile(dynamic=True)"),
        ("@torch.compile(fullgraph=True)", "@torch.compile(fullgraph=True, dynamic=True)"),
    ],
)
def test_the_function_s_own_decorator_is_told(tmp_path, decorator, instead):
    rest = "def f(x):\n    return x * 2  # <<\nother = torch.compile(g)\n"
    after, _ = compiled(tmp_path, f"{decorator}\n{rest}")
    assert after == f"{instead}\n{rest.replace('  # <<', '')}"


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (f"{NET}model = torch.compile(Net())\n", "self.steps == 6", "no size that changes"),
        (f"{NET}model = torch.compile(Net())\n", "", "no size that changes"),
        (f"{NET}a = torch.compile(Net())\nb = torch.compile(Net())\n", SIZES, "which torch.compile()"),
        (f"{NET}model.compile()\n", SIZES, "which torch.compile()"),
        (f"{NET}model = keras()\nmodel.compile()\n", SIZES, "which torch.compile()"),
        (
            f"{NET}    def compile(self):\n        pass\nmodel = Net()\nmodel.compile()\n",
            SIZES,
            "which torch.compile()",
        ),
        (f"{NET}model = Net()\n", SIZES, "which torch.compile()"),
        (f"{NET}@torch.compile\ndef g(x):\n    return x\n", SIZES, "which torch.compile()"),
        (f"{NET}model = torch.compile(Net(), dynamic=False)\n", SIZES, "given dynamic= already"),
        (f"{NET}model = torch.compile(Net(), **how)\n", SIZES, "given dynamic= already"),
    ],
)
def test_other_values_and_unclear_calls_are_left(tmp_path, text, reason, words):
    after, left = compiled(tmp_path, text, reason)
    assert after == ""
    assert words in left


def test_what_is_dynamic_is_there(tmp_path):
    assert compiled(tmp_path, f"{NET}model = torch.compile(Net(), dynamic=True)\n")[1] == "there"
