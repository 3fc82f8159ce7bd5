"""State dicts of models, and of things that are none."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.states.state_dicts import bound_to, is_deepcopy, loads_it, state_of, unlike_module

HEAD = "import copy, torch\nfrom torch import nn\nfrom copy import deepcopy\n"


def script(folder, text):
    return project_of(folder, train=HEAD + text)


def test_the_forms_of_copies_and_loads(tmp_path):
    source = script(
        tmp_path, "a = deepcopy(m.state_dict())\nm.load_state_dict(a, strict=False)\nb = m.state_dict(c)\n"
    ).script
    copied, loaded, other = (each.value for each in source.tree.body[-3:])
    assert is_deepcopy(source, copied) and not is_deepcopy(source, loaded)
    assert ast.unparse(state_of(copied.args[0])) == "m" and state_of(other) is None
    assert loads_it(loaded, loaded.args[0]) and not loads_it(copied, copied.args[0])
    assert bound_to(source.tree.body[-3], copied) == "a" and bound_to(source.tree.body[-2], loaded) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m = nn.Linear(2, 2)\n", ""),
        ("class N(nn.Module):\n    pass\nm = copy.deepcopy(N())\n", ""),
        ("def f(m):\n    return m.parameters()\n", ""),
        ("m = torch.optim.SGD(p, 1)\n", "an optimizer, which keeps"),
        ("def f(m):\n    m.step()\n", "nothing shows that m is a model"),
        ("class N(nn.Module):\n    def state_dict(self):\n        return {}\nclass M(N):\n    pass\nm = M()\n",
         "of its own"),
        ("class N(nn.Module):\n    def load_state_dict(self, s):\n        self.s = s\ndef f(m):\n    m.parameters()\n",
         "of its own"),
        ("class E:\n    def state_dict(self):\n        return {}\nm = nn.Linear(2, 2)\n", ""),
    ],
)  # fmt: skip
def test_what_may_be_no_plain_module(tmp_path, text, reason):
    project = script(tmp_path, text)
    source = project.script
    names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == "m"]
    found = unlike_module(project, source, names[-1], surely=True)
    assert reason in found and bool(found) == bool(reason)
