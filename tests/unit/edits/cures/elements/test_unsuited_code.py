"""Projects in which no array may take the place of a tensor."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.elements.unsuited_code import torch_name, unsuited

HEAD = "import torch\nimport re\n"


@pytest.mark.parametrize(
    "line",
    [
        "torch.jit.trace(net, x)", "from torch.jit import script", "torch.compile(f)", "net.compile()",
        "from torch.fx.experimental.proxy_tensor import make_fx", "torch.func.vmap(f)",
        "torch.onnx.export(net, x, 'a')", "writer.add_graph(net, x)", "x.resize_(3)", "torch.cat(x, out=y)",
        "x.set_(y)", "x.data = y", "x.t_()", "x._version",
        "getattr(x, 'resize_')", "torch.zeros = f", "torch.Tensor.__eq__ = f", "setattr(torch, 'zeros', f)",
        "from other import *", "import builtins", "exec(x)", "np.seterr(all='raise')", "type = 3",
        "import warnings\nwarnings.simplefilter('error')", "def all(x): pass", "import multiprocessing\nq.put(x)",
        "class A:\n    def __del__(self): pass",
    ],
)  # fmt: skip
def test_what_speaks_against_arrays(tmp_path, line):
    project = project_of(tmp_path, train=f"{HEAD}{line}\n")
    assert unsuited(project, project.script) != ""


@pytest.mark.parametrize(
    "line",
    ["re.compile('a')", "q.put(x)", "x.data.copy_(y)", "torch.backends.cudnn.benchmark = True", "m.trace()", "m.eval()",
     "print(torch.__version__)", "compiled = 3", "import warnings\nwarnings.simplefilter('ignore')", "vars(args)"],
)  # fmt: skip
def test_what_does_not(tmp_path, line):
    project = project_of(tmp_path, train=f"{HEAD}{line}\n")
    assert unsuited(project, project.script) == ""


def test_other_files_count_and_the_name_of_torch(tmp_path):
    project = project_of(tmp_path, train="import torch as t\nimport other\n", other="x.resize_(3)\n")
    assert unsuited(project, project.script).startswith("other.py:1: ")
    assert torch_name(project.script) == "t"
    project = project_of(tmp_path, train="def f():\n    import torch\n")
    assert torch_name(project.script) == ""
    assert "not imported by its name" in unsuited(project, project.script)
