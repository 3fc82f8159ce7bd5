"""Forms that are taken where the script finds what they need: their names, and where nothing can be asked."""

import ast

import pytest
from tests.unit.edits.scripts import project_of
from tests.unit.report.specimens import finding

from flatout.edits.cures.asked_forms import asked_form, name_of_module, unasked, with_parts
from flatout.edits.finding_edit import EditPlace
from flatout.edits.rewrite import Unplaced


def place_of(folder, text):
    project = project_of(folder, train=text)
    return EditPlace(project, project.script, project.script.tree.body[-1], finding())


def call_in(place):
    calls = [each for each in ast.walk(place.statement) if isinstance(each, ast.Call)]
    return next(each for each in calls if ast.unparse(each.func).endswith(".norm"))


def test_operands_are_computed_once_and_have_names_of_their_own(tmp_path):
    place = place_of(tmp_path, "import torch as x\nd = x.norm(f(a, x_2), dim=x_3)\n")
    call = call_in(place)
    asked = asked_form(place, call, {"x": call.args[0]})
    assert (asked.names, asked.torch, asked.otherwise) == (("x_2",), "x", "x.norm(x_2, dim=x_3)")
    after = asked.put(place, "sure", "quick(x_2)").project.script.code.decode()
    assert after.endswith("d = (lambda x_2: quick(x_2) if sure else x.norm(x_2, dim=x_3))(f(a, x_2))\n")


def test_torch_is_imported_where_only_parts_of_it_are(tmp_path):
    place = place_of(tmp_path, "from torch import nn\nd = h.norm(dim=0)\n")
    call = call_in(place)
    asked = asked_form(place, call, {"x": call.func.value})
    assert asked.named(call.func.value) == "x"
    assert asked.is_tensor("x") == "type(x) in (torch.Tensor, torch.nn.Parameter)"
    assert asked.put(place, "s", "q").project.script.code.decode().startswith("import torch\nfrom torch import nn\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("d = h.norm(dim=0)\n", ""),
        ("import torch\ntorch.jit.script(f)\nd = h.norm(dim=0)\n", "what is traced"),
        ("from tools import *\nd = h.norm(dim=0)\n", "a name of Python's own"),
        ("def f(type): pass\nd = h.norm(dim=0)\n", "a name of Python's own"),
        ("d = f'{h.norm(dim=0)}'\n", "f-string"),
        ("class A:\n    d = h.norm(dim=0)\n", "body of a class"),
        ("print('norm', h.norm(dim=0))\n", "may be printed"),
        ("log.info('%s' % h.norm(dim=0))\n", "may be printed"),
    ],
)
def test_where_nothing_can_be_asked(tmp_path, text, reason):
    place = place_of(tmp_path, text)
    found = unasked(place, call_in(place))
    assert (reason in found) if reason else not found


def test_a_module_that_is_imported_in_functions_alone_has_no_name(tmp_path):
    assert name_of_module(place_of(tmp_path, "import numpy as np\nx = 1\n"), "numpy") == "np"
    assert name_of_module(place_of(tmp_path, "x = 1\n"), "numpy") == "numpy"
    for text in ("def f():\n    import torch\nx = 1\n", "torch = 3\nx = 1\n"):
        with pytest.raises(Unplaced):
            name_of_module(place_of(tmp_path, text), "torch")


def test_parts_are_replaced_in_a_copy(tmp_path):
    node = ast.parse("a[i] + [b, a[i]]", mode="eval").body
    made = with_parts(node, {node.left: ast.Name("q"), node.right.elts[1].value: ast.Name("r")})
    assert (ast.unparse(made), ast.unparse(node)) == ("q + [b, r[i]]", "a[i] + [b, a[i]]")


@pytest.mark.parametrize("line", ["print(d)", "text = f'{d}'", "log.debug('d %s', d)", "rows = str((1, d))"])
def test_a_tensor_that_is_printed_shows_the_name_of_its_graph(tmp_path, line):
    place = place_of(tmp_path, f"def f(h):\n    d = h.norm(dim=0)\n    {line}\n")
    assert "may be printed" in unasked(place, call_in(place))
    assert not unasked(place, call_in(place), shown=False)
    place = place_of(tmp_path, "def f(h):\n    d = h.norm(dim=0)\n    print(d.shape)\n")
    assert not unasked(place, call_in(place))
    for line in ("print(h.norm(dim=0).item())", "print(h.norm(dim=0) + 1)"):  # the last step is the same
        place = place_of(tmp_path, f"{line}\n")
        node = next(each for each in ast.walk(place.statement) if ast.unparse(each) == "h.norm(dim=0)")
        assert not unasked(place, node)
