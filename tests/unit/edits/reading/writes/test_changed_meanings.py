"""Names that mean something else than they say: patched functions, operators and calls of modules.

Module: flatout.edits.reading.writes.changed_meanings.
"""

import pytest
from tests.unit.edits.scripts import edited, project_of

from flatout.edits.reading.writes.changed_meanings import changed_meaning, traced_somewhere

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.mean = mine\n", "torch.mean may give"),
        ("F.relu = lambda x: x\n", "F.relu may give"),
        ("net.forward = traced\n", "net.forward may give"),
        ("del torch.add\n", "torch.add may give"),
        ("setattr(F, 'softmax', mine)\n", "setattr(F, 'softmax', mine) may give"),
        ("getattr(net, 'register_' + kind)(see)\n", "may give a name"),
        ("net.register_forward_pre_hook(see)\n", "forward_pre_hook"),
        ("class Count:\n    def __add__(self, other):\n        self.n += 1\n", "__add__ of the user's"),
        ("class Any:\n    def __getattr__(self, name):\n        return name\n", "__getattr__ of the user's"),
    ],
)
def test_another_meaning_is_seen(tmp_path, text, words):
    assert words in changed_meaning(project_of(tmp_path, train=HEAD + text))


def test_ordinary_code_keeps_its_meanings(tmp_path):
    text = """\
class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc, self.size = nn.Linear(size, 2), size
    def forward(self, x):
        return self.fc(x)
net = Net(getattr(args, "size", 4))
net.name = "small"
"""
    assert changed_meaning(project_of(tmp_path, train=HEAD + text)) == ""


PATCHED = "net = nn.Linear(4, 2)\nnet.forward = traced\n"


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("not-recorded", "hits = (net(x) > 0).sum().item()  # <<\n", {"with_grad": 1}),
        ("one-backward", "a.backward(retain_graph=True)\nb = net(x)\nb.backward()  # <<\n", {}),
        ("earlier-outputs", "out = net(x)\nhits = net(x).argmax(1)  # <<\n", {"changed": 0, "marked": 0}),
        ("foreach", "for p in ps:\n    p.mul_(2)  # <<\n", {}),
        ("fused-attention", "out = (q @ k.mT).softmax(-1) @ v  # <<\n", {}),
        ("copy-left-out", "def f(x):\n    y = x.clone()  # <<\n    return y + 1\n", {"kind": "clone"}),
        ("broadcast", "def f(x, z):\n    y = x.repeat(2, 1)  # <<\n    return z + y\n", {"kind": "repeat"}),
        ("needed-inputs", "o = torch.optim.SGD(net.parameters())\nloss.backward()  # <<\no.step()\n", {}),
        ("detach", "total = 0\nloss = F.mse_loss(net(x), y)\ntotal += loss  # <<\n", {}),
    ],
)
def test_edits_leave_such_projects(tmp_path, name, text, facts):
    assert edited(tmp_path, name, HEAD + PATCHED.split("net.f")[0] + text, **facts)[1] == ""
    after, left = edited(tmp_path, name, HEAD + PATCHED + text, **facts)
    assert after == ""
    assert "net.forward" in left


@pytest.mark.parametrize(
    "line",
    [
        "model = torch.compile(net)",
        "net.compile()",
        "from torch.func import functional_call",
        "scripted = torch.jit.script(net)",
        "torch.onnx.export(net, x, path)",
        "writer.add_graph(net, x)",
    ],
)
def test_code_that_is_traced_is_asked_nothing(tmp_path, line):
    assert "takes in no question" in traced_somewhere(project_of(tmp_path, train=f"{HEAD}{line}\n"))
    text = f"{HEAD}out = (q @ k.mT).softmax(-1) @ v  # <<\n"
    assert edited(tmp_path, "fused-attention", text)[1] == ""
    assert "takes in no question" in edited(tmp_path, "fused-attention", f"{text}{line}\n")[1]
    text = f"{HEAD}for p in ps:\n    p.mul_(2)  # <<\n"
    assert "takes in no question" in edited(tmp_path, "foreach", f"{text}{line}\n")[1]


def test_other_compilers_trace_nothing(tmp_path):
    assert traced_somewhere(project_of(tmp_path, train=f"{HEAD}import re\nword = re.compile('a')\n")) == ""
