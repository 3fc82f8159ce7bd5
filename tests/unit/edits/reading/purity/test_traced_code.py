"""What traces code in a project, as its imports, names and attributes say."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.traced_code import replaced_in, traced_by


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch\nf = torch.jit.script(f)", "`torch.jit.script`"),
        ("from torch.fx import symbolic_trace", "`torch.fx.symbolic_trace`"),
        ("class A:\n    def __torch_function__(self): pass", "`__torch_function__`"),
        ("run(vmap(f))", "`vmap`"),
        ("import torch, re\nre.compile('a'); print('vmap')", ""),
        ("import torch\nx = torch.ones(3).sum()", ""),
    ],
)
def test_what_traces_is_named(tmp_path, text, found):
    assert traced_by(project_of(tmp_path, train=text)) == found


def test_a_compiler_counts_where_it_is_asked_for(tmp_path):
    project = project_of(tmp_path, train="import torch\nmodel = torch.compile(model)")
    assert traced_by(project) == ""
    assert "compile" in traced_by(project, compiled=True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torch.cat = f", "`torch.cat`"),
        ("torch.Tensor.unbind = f", "`torch.Tensor.unbind`"),
        ("nn.functional.relu = f", "`nn.functional.relu`"),
        ("setattr(np, 'stack', f)", "`setattr(np, 'stack', f)`"),
        ("torch.backends.cudnn.benchmark = True", ""),
        ("setattr(args, 'lr', 1); args.cat = 3", ""),
    ],
)
def test_what_is_replaced_is_named(tmp_path, line, found):
    project = project_of(tmp_path, train=f"import numpy as np\nimport torch\nfrom torch import nn\n{line}\n")
    assert replaced_in(project) == found
