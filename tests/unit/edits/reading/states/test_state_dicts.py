"""State dicts of models, and what gives the names of their methods another meaning."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.states.state_dicts import (
    bound_to,
    cloned_value,
    is_deepcopy,
    is_made_as_module,
    is_seen,
    loads_it,
    state_of,
    unsettled,
)

HEAD = "import copy, torch\nfrom torch import nn\nfrom copy import deepcopy\n"


def script(folder, text, **others):
    return project_of(folder, train=HEAD + text, **others)


def test_the_forms_of_copies_and_loads(tmp_path):
    source = script(
        tmp_path, "a = deepcopy(m.state_dict())\nm.load_state_dict(a, strict=False)\nb = m.state_dict(c)\n"
    ).script
    copied, loaded, other = (each.value for each in source.tree.body[-3:])
    assert is_deepcopy(source, copied) and not is_deepcopy(source, loaded)
    assert ast.unparse(state_of(copied.args[0])) == "m" and state_of(other) is None
    assert loads_it(loaded, loaded.args[0]) and not loads_it(copied, copied.args[0])
    assert bound_to(source.tree.body[-3], copied) == "a" and bound_to(source.tree.body[-2], loaded) == ""
    assert cloned_value(source, other) is None


@pytest.mark.parametrize(
    ("text", "is_module"),
    [
        ("m = nn.Linear(2, 2)\n", True),
        ("class N(nn.Module):\n    pass\nm = copy.deepcopy(N())\n", True),
        ("def f(m):\n    return m.parameters()\n", False),
        ("m = torch.optim.SGD(p, 1)\n", False),
        ("def f(m):\n    m.step()\n", False),
    ],
)
def test_what_is_made_as_a_module(tmp_path, text, is_module):
    project = script(tmp_path, text)
    names = [node for node in ast.walk(project.script.tree) if isinstance(node, ast.Name) and node.id == "m"]
    assert is_made_as_module(project, project.script, names[-1]) == is_module


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m.load_state_dict(s)\ntorch.save({'state_dict': m.state_dict()}, p)\nvars(args)\nm.eval()\n", ""),
        ("class N(nn.Module):\n    def state_dict(self):\n        return {}\n", "state_dict is a name of the user's"),
        ("class N(nn.Module):\n    load_state_dict = lambda self, s: self.s.update(s)\n", "load_state_dict is a name"),
        ("m.load_state_dict = f\n", "load_state_dict is a name"),
        ("setattr(m, 'state_dict', f)\n", "state_dict is a name"),
        ("a = {'load_state_dict': f}\n", "load_state_dict is a name"),
        ("f = functools.partial(g, assign=True)\n", "assign=True"),
        ("from helpers import *\n", "imported by *"),
        ("import threading\n", "threading is used"),
        ("from concurrent.futures import ThreadPoolExecutor\n", "concurrent.futures is used"),
        ("import signal as s\n", "signal is used"),
        ("class S:\n    def __rmul__(self, x):\n        return x\n", "__rmul__ is used"),
        ("S.__setattr__ = f\n", "__setattr__ is used"),
        ("def f():\n    return locals()\n", "locals is used"),
        ("globals()['a']\n", "globals is used"),
        ("exec('a')\n", "exec is used"),
        ("vars()['a']\n", "vars() is used"),
        ("m.share_memory()\n", "share_memory is used"),
        ("m.register_state_dict_pre_hook(f)\n", "state_dict_pre_hook is used"),
        ("import sys\nsys.path.append('x')\n", "sys.path is used"),
    ],
)
def test_what_may_make_state_dicts_the_users_own(tmp_path, text, reason):
    found = unsettled(script(tmp_path, text))
    assert reason in found and bool(found) == bool(reason)


def test_code_that_is_not_read_may_do_anything(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert "not all code is read" in unsettled(script(tmp_path, "import broken\n"))


@pytest.mark.parametrize(
    ("text", "other", "seen"),
    [
        ("a = 1\n", "b = 2\n", False),
        ("import other\n", "import train\n", True),
        ("import other\n", "from train import a\n", True),
        ("import other\n", "import sys\nsys.modules['train'].a\n", True),
        ("import other\n", "import __main__\n", True),
    ],
)
def test_names_of_a_script_may_be_read_by_other_files(tmp_path, text, other, seen):
    project = script(tmp_path, text, other=other)
    assert is_seen(project, project.script) == seen
    assert all(is_seen(project, each) for each in project.sources[1:])
