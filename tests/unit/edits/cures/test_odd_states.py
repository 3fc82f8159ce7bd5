"""Scripts in which a copied state dict matters: they print the same when edited, or are left with a reason.

Modules: flatout.edits.cures.state_copies, flatout.edits.cures.state_uses
"""

import contextlib
import io

import pytest
import torch
from tests.unit.edits.scripts import edited, project_of

from flatout.edits.finding_cures import EDITS
from flatout.edits.finding_edit import EditPlace

HEAD = """\
import copy
import torch
from torch import nn

class Pair(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        if tied:
            self.b.weight = self.a.weight

def zero(m):
    with torch.no_grad():
        for p in m.parameters():
            p.zero_()

m, t = nn.Linear(2, 2), nn.Linear(2, 2)
"""


def printed(text):
    torch.manual_seed(0)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    assert out.getvalue()
    return out.getvalue()


SHARED = {
    "tied, one of them bound anew": """
m = Pair(tied=True)
now = copy.deepcopy(m.state_dict())  # <<
now["a.weight"] = now["a.weight"] * 2
m.load_state_dict(now)
print(m.a.weight.tolist())
""",
    "tied, bound anew by a condition": """
def f(m):
    new = {k: v.clone() for k, v in m.state_dict().items()}  # <<
    for k, v in new.items():
        if k.startswith("a"):
            v = v * 2
        new[k] = v
    m.load_state_dict(new)
m = Pair(tied=True)
f(m)
print(m.a.weight.tolist())
""",
    "layers in another order": """
net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
back = nn.Sequential(*reversed(list(net.children())))
back.load_state_dict(copy.deepcopy(net.state_dict()))  # <<
print(net[0].weight.tolist(), net[1].weight.tolist())
""",
    "layers in another order, through a name": """
one, two = nn.ModuleList([m, t]), nn.ModuleList([t, m])
state = copy.deepcopy(one.state_dict())  # <<
two.load_state_dict(state)
print(m.weight.tolist(), t.weight.tolist())
""",
    "some layers shared": """
one, two = nn.ModuleList([m, t]), nn.ModuleList([nn.Linear(2, 2), m])
two.load_state_dict({k: v.clone() for k, v in one.state_dict().items()})  # <<
print(m.weight.tolist(), two[0].weight.tolist())
""",
    "two views of the same numbers": """
flat = torch.arange(12.0)
m.weight, t.weight = nn.Parameter(flat[:4].view(2, 2)), nn.Parameter(flat[2:6].view(2, 2))
one, two = nn.ModuleList([m, t]), nn.ModuleList([t, m])
two.load_state_dict(copy.deepcopy(one.state_dict()))  # <<
print(flat.tolist())
""",
    "an optimizer keeps what it loads": """
q = nn.Parameter(torch.ones(2))
one = torch.optim.SGD([q], lr=0.1, momentum=0.9)
(q * q).sum().backward()
one.step()
start = copy.deepcopy(one.state_dict())
for _ in range(3):
    one.load_state_dict(copy.deepcopy(start))  # <<
    one.step()
print(q.tolist())
""",
    "another optimizer": """
one, two = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), torch.optim.SGD(t.parameters(), 0.1, momentum=0.9)
m(torch.ones(1, 2)).sum().backward()
one.step()
two.load_state_dict(copy.deepcopy(one.state_dict()))  # <<
for _ in range(3):
    one.step()
    t(torch.ones(1, 2)).sum().backward()
    two.step()
print(m.weight.tolist(), t.weight.tolist())
""",
    "lazy layers": """
m, t = nn.LazyLinear(2), nn.LazyLinear(2)
m(torch.ones(1, 3))
t.load_state_dict(copy.deepcopy(m.state_dict()))  # <<
zero(m)
print(t.weight.tolist())
""",
    "elements that do not lie side by side": """
m.weight, t.weight = (nn.Parameter(torch.randn(64, 67)[:, ::2]) for _ in range(2))
def f(m, t, d):
    mine = {k: v.clone() for k, v in m.state_dict().items()}  # <<
    theirs = {k: v.clone() for k, v in t.state_dict().items()}
    with torch.no_grad():
        for k, v in theirs.items():
            theirs[k] = v.lerp(mine[k].exp(), d)
        t.load_state_dict(theirs)
f(m, t, 0.3)
print(t.weight.double().sum().item())
""",
    "a dictionary of the model itself": """
def f(m):
    mine = copy.deepcopy(m.state_dict())  # <<
    theirs = m.state_dict()
    for k in theirs:
        theirs[k] = theirs[k] * 0.5 + mine[k] * 2
    m.load_state_dict(theirs)
f(m)
print(m.weight.tolist())
""",
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_only_known_while_it_runs_is_asked_there(tmp_path, name):
    text = HEAD + SHARED[name]
    after, left = edited(tmp_path, "state-copies", text)
    assert left == "" and printed(after) == printed(text)


KEPT = {
    "return log + [s['weight']]": "may be kept",
    "return (s['weight'],)": "may be kept",
    "return +s['weight']": "may be kept",
    "return {k: +v for k, v in s.items()}": "may be kept",
    "return {k: v for k, v in s.items()}": "may be kept",
    "head, tail = s['weight'].split(1)\n    return head": "may be kept",
    "return True and s['weight']": "may be kept",
    "w = s['weight']\n    log.append(w)": "may be kept",
    "for v in s.values():\n        log.add(v)": "may be kept",
    "log.last(s['weight'])": "may be kept",
    "mine = {}\n    w = s['weight']\n    mine[w] = 1\n    return mine": "may be kept",
    "return (v for v in s.values())": "may be kept",
    "return (v * 2 for v in s.values())": "may be kept",
    "log += s['weight']": "log += s['weight']",
    "return lambda w=s['weight']: w": "outside of the block",
    "s['weight'] = +s['bias']\n    m.load_state_dict(s)": "may be kept",
    "first = s['weight']\n    s['weight'] = s['bias']\n    s['bias'] = first\n    m.load_state_dict(s)": "may be kept",
    "total = 0\n    for k in s:\n        total = total + (log * s[k]).abs()\n    return total": "may be kept",
    "o = m.state_dict()\n    for k in o:\n        o[k] = log * s[k]\n    return o['weight']": "return o['weight']",
    "out = {}\n    for k in s:\n        out[k] = log * s[k]\n    return out": "may be kept",
    "x = m.norm(log)\n    m.load_state_dict(s)": "m.norm(log)",
    "x = list(log)\n    m.load_state_dict(s)": "list(log)",
    "x = sum(log)\n    m.load_state_dict(s)": "sum(log)",
    "x, y = log\n    m.load_state_dict(s)": "(x, y)",
    "for x in log:\n        y = x\n    m.load_state_dict(s)": "for x in log:",
    "x = log @ 3\n    m.load_state_dict(s)": "log @ 3",
    "log.gain = 3\n    m.load_state_dict(s)": "log.gain",
    "for k in s:\n        s[k] = s[k] * 2\n        break\n    m.load_state_dict(s)": "or not",
    "for k in s:\n        if k == '':\n            continue\n        s[k] = -s[k]\n    m.load_state_dict(s)": "or not",
    "if log:\n        m.load_state_dict(s)": "or not at all",
    "try:\n        zero(m)\n    finally:\n        m.load_state_dict(s)": "try:",
    "w = s['weight']\n    m.load_state_dict(s)\n    return w.tolist()": "after it was loaded",
}


@pytest.mark.parametrize("lines", KEPT)
def test_what_goes_on_with_items_is_left(tmp_path, lines):
    text = f"{HEAD}def f(m, log):\n    s = copy.deepcopy(m.state_dict())  # <<\n    {lines}\n"
    after, left = edited(tmp_path, "state-copies", text)
    assert after == "" and KEPT[lines] in left


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("start = copy.deepcopy(m.state_dict())\nstart.update(other)\nm.load_state_dict(copy.deepcopy(start))  # <<\n",
         "something else than loads"),
        ("start = copy.deepcopy(m.state_dict())\nzero(start)\nm.load_state_dict(copy.deepcopy(start))  # <<\n",
         "something else than loads"),
        ("def f(start):\n    m.load_state_dict(copy.deepcopy(start))  # <<\n", "under other names"),
        ("start = dict(m.state_dict())\nm.load_state_dict(copy.deepcopy(start))  # <<\n", "under other names"),
        ("m.load_state_dict(copy.deepcopy(nets[0].state_dict()))  # <<\n", "another model each time"),
        ("class A:\n    net = property(lambda self: self.nets.pop())\n    def f(self):\n"
         "        self.net.load_state_dict(copy.deepcopy(self.net.state_dict()))  # <<\n", "another model each time"),
        ("m.load_state_dict = print\nm.load_state_dict(copy.deepcopy(t.state_dict()))  # <<\n", "a name of the user's"),
        ("import threading\nm.load_state_dict(copy.deepcopy(t.state_dict()))  # <<\n", "threading"),
    ],
)  # fmt: skip
def test_what_is_loaded_at_once_and_left(tmp_path, text, reason):
    after, left = edited(tmp_path, "state-copies", HEAD + text)
    assert after == "" and reason in left


def written(folder, train, setup):
    """Make the edit in the module `setup`, at its last statement."""
    project = project_of(folder, train=train, setup=setup)
    source = project.sources[1]
    done = EDITS["state-copies"].write(EditPlace(project, source, source.tree.body[-1], None))
    return done.changed, " ".join(done.left)


SET_UP = HEAD + "start = copy.deepcopy(m.state_dict())\nt.load_state_dict(start)\n"


@pytest.mark.parametrize(
    "train", ["from setup import m, start\n", "from setup import *\n", "import setup\nsetup.start\n"]
)
def test_names_that_other_files_may_read_are_left(tmp_path, train):
    changed, left = written(tmp_path, train, SET_UP)
    assert not changed and left


def test_a_file_without_torch_by_name_is_left(tmp_path):
    text = "import copy\nfrom torch import nn\nm, t = nn.Linear(2, 2), nn.Linear(2, 2)\n"
    after, left = edited(tmp_path, "state-copies", f"{text}t.load_state_dict(copy.deepcopy(m.state_dict()))  # <<\n")
    assert after == "" and "no import of torch above" in left


def test_a_shallow_copy_is_imported_where_it_is_not(tmp_path):
    text = (
        "from copy import deepcopy\n"
        + HEAD.replace("import copy\n", "")
        + """
def f(m, t):
    new = deepcopy(t.state_dict())  # <<
    for k in new:
        new[k] = new[k] * 2
    t.load_state_dict(new)
f(m, t)
print(t.weight.tolist())
"""
    )
    after, left = edited(tmp_path, "state-copies", text)
    assert left == "" and "import copy\n" in after and "new = copy.copy(t.state_dict())" in after
    assert printed(after) == printed(text)
    after, _ = edited(tmp_path, "state-copies", text.replace("import deepcopy", "import copy, deepcopy"))
    assert after == ""
