"""What is done with values: numbers are read, or more, which shows whether they have a graph.

Modules: flatout.edits.reading.graphs.kept_graphs, flatout.edits.reading.graphs.number_uses,
flatout.edits.reading.graphs.recorded_values.
"""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.graphs.kept_graphs import read_otherwise
from flatout.edits.reading.graphs.recorded_values import may_record

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
net, crit = nn.Linear(4, 2), nn.MSELoss()
loader = DataLoader(data)
"""


def otherwise(folder, text):
    """Return what the first line marked `# <<` would do otherwise without gradients."""
    project = project_of(folder, train=HEAD + text)
    source = project.script
    line = next(at for at, each in enumerate(source.lines, 1) if "# <<" in each)
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and node.lineno == line]
    return read_otherwise(project, source, found[:1])


@pytest.mark.parametrize(
    "text",
    [
        "out = net(x)  # <<\nhits = out.argmax(1).eq(y).sum().item()\n",
        "_, top = net(x).max(1)  # <<\nfound = top.cpu().numpy()\nprint(found, top)\n",
        "losses = []\nlosses.append(crit(net(x), y))  # <<\nprint(torch.stack(losses).mean().item(), len(losses))\n",
        "loss = crit(net(x), y)  # <<\nif best is None or loss < best:\n    best = float(loss)\nprint(best)\n",
        "loss = crit(net(x), y)  # <<\nprint(f'{loss:.3f}')\nloss = crit(net(x), y)\nloss.backward()\n",
        "for x, y in loader:  # <<\n    n += y.size(0)\n    all_y = y.cpu().numpy()\n    print(all_y, n)\n",
        "def acc(out, y):\n    return (out > 0).eq(y).float().mean().item()\nprint(acc(net(x), y))  # <<\n",
        "for layer in [nn.Linear(4, 4)]:\n    h = layer(x)\na = net(h)  # <<\nprint(a.shape, a.dtype)\n",
        "for at in range(0, len(x), 8):  # <<\n    print(x[at : at + 8].sum().item())\n",
        "kept = []\nkept.append(net(x))  # <<\nprint(torch.cat(kept).std().item())\nkept.clear()\n",
        "def score(x):\n    m = net(x).mean()  # <<\n    return m\nprint(score(x).item() + score(x).detach())\n",
    ],
)
def test_numbers_are_all_that_is_read(tmp_path, text):
    assert otherwise(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("out = net(x)  # <<\nprint('%s' % out)\n", "%s"),
        ("out = net(x)  # <<\nprint(f'{out}')\n", "{out}"),
        ("out = net(x)  # <<\nlog.info(out)\n", "log.info"),
        ("out = net(x)  # <<\nif out is last:\n    pass\n", "is last"),
        ("for i in q:\n    print(out)\n    out = net(x)  # <<\n", "print(out)"),
        ("if a:\n    out = net(x)  # <<\nif b:\n    out = 1\nprint(out)\n", "print(out)"),
        ("out = net(x)  # <<\ndef f():\n    return out\nf().sum().backward()\n", "backward"),
        ("def f():\n    out = net(x)  # <<\n    return out\ng = f\n", "`f`"),
        ("def f():\n    out = net(x)  # <<\n    return out\nf().sum().backward()\n", "backward"),
        ("def f(out, keep):\n    keep.append(net(x))  # <<\n", "keep"),
        ("def f(out):\n    print(out)\nf(net(x))  # <<\n", "print(out)"),
        ("self.out = net(x)  # <<\nclass Other:\n    def see(self, state):\n        show(state.out)\n", "show"),
        ("out = net(x)  # <<\na, b = 1, (out, 2)\nb[0].backward()\n", "backward"),
        ("if (out := net(x)).sum() > 0:  # <<\n    send(out)\n", "send"),
        ("out = net(x)  # <<\nprint(vars())\n", "vars"),
        ("out = [net(x) for _ in q]  # <<\nfor each in out:\n    each.backward()\n", "backward"),
        ("run = lambda v: v.backward()\nrun(net(x))  # <<\n", "run"),
        ("def sort(t):\n    return 1, t.sum()\na, b = sort(net(x))  # <<\nb.backward()\n", "backward"),
        ("_, b = min([(1, net(x)), (2, net(y))])  # <<\nb.backward()\n", "backward"),
        ("self.aux = net(x)  # <<\nshow(getattr(self, 'aux'))\n", "getattr"),
        ("class Box:\n    def item(self):\n        return self.t\nv = net(x).item()  # <<\nv.backward()\n", "backward"),
        ("def wrap(f):\n    return lambda x: f(x).backward()\n@wrap\ndef g(x):\n    return net(x)\ng(x).item()  # <<\n",
         "asks for gradients"),
        ("with torch.autocast('cpu'):\n    print(net(x).argmax().item())  # <<\n    crit(net(x), y)\n", "autocast"),
        ("def see(x):\n    print(net(x).argmax().item())  # <<\nwith torch.autocast('cpu'):\n    see(x)\n", "autocast"),
        ("from operator import methodcaller\nrun = methodcaller('backward')\nrun(net(x))  # <<\n", "run"),
        ("import warnings\nwarnings.simplefilter('error')\nn = float(net(x))  # <<\n", "warnings are looked at"),
        ("with parametrize.cached():\n    print(net(x).argmax().item())  # <<\n", "cached"),
        ("with torch.enable_grad():  # <<\n    out = net(x)\n", "enable_grad"),
        ("class A(nn.Module):\n    def forward(self, x):\n        self.seen[0] = self.a(x)\nA()(x)  # <<\n", "keeps"),
        ("class A(nn.Module):\n    def forward(self, x):\n        print(self.a(x))\nA()(x)  # <<\n", "print"),
    ],
)  # fmt: skip
def test_more_is_seen(tmp_path, text, word):
    assert word in otherwise(tmp_path, text)


@pytest.mark.parametrize(
    ("code", "records"),
    [
        ("net(x)", True),
        ("a + 1", True),
        ("torch.zeros(3)", False),
        ("torch.zeros(3, requires_grad=True)", True),
        ("(net(x) > 0).float().mean()", False),
        ("net(x).max(1)[1]", False),
        ("net(x).max(1)[0]", True),
        ("net(x).shape[0] * 2", False),
        ("float(net(x))", False),
        ("F.one_hot(y) * 2", False),
    ],
)
def test_what_may_have_a_graph(tmp_path, code, records):
    project = project_of(tmp_path, train=f"{HEAD}a = net(x)\nvalue = {code}\n")
    assert may_record(project, project.script, project.script.tree.body[-1].value) is records
