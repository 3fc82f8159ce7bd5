"""What may see that a computation is left out, or make another thing of it."""

import pkgutil

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.watched_code import MODULES_OF_TORCH, WATCHING_MODULES, patched_names, watched_by

HEAD = "import torch\nimport numpy as np\nfrom torch import nn\n"

QUIET = [
    "import argparse, json, math, os, random, sys, time\nfrom torch.utils.data import DataLoader\nprint(sys.argv)",
    "import torch.nn.functional as F\nfrom torch.optim.lr_scheduler import StepLR",
    "from torch.nn.utils import clip_grad_norm_",
    "torch.backends.cudnn.benchmark = True\ntorch.manual_seed(0)\nprint(torch.__version__)",
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.norm = nn.LayerNorm(3)",
    "print(vars(args))\njson.dump(vars(args), file)",
    "optimizer = getattr(torch.optim, name)(model.parameters())\nx = getattr(args, 'x', None)",
    "print(type(x).__name__, x.__class__.__name__)\nif type(x) is int:\n    y = type(x)()",
    "setattr(args, 'lr', 3)\nif __name__ == '__main__':\n    main()",
    "x = x.to(device, non_blocking=True)\nloader = DataLoader(d, pin_memory=True)",
    "profile, graph, mode = 1, 2, 3",
]


@pytest.mark.parametrize("text", QUIET)
def test_what_everyday_scripts_do(tmp_path, text):
    assert watched_by(project_of(tmp_path, train=HEAD + text), models=True) == ""


WATCHED = [
    "import gc", "import inspect", "import unknown", "from unknown import x", "from math import *", "import importlib",
    "import torch.distributed as dist", "from torch.distributed.tensor import DTensor", "torch.distributed.barrier()",
    "from torch.utils.flop_counter import FlopCounterMode", "torch.profiler.profile()", "torch.autograd.profiler.x()",
    "torch.autograd.graph.saved_tensors_hooks(f, g)", "t = torch", "a = torch.autograd",
    "from torch import autograd\nf(autograd)",
    "from torch.fx import Tracer", "torch.func.vmap(f)", "torch._dynamo.reset()", "torch.hub.load(x)",
    "torch.cuda.graph(g)", "torch.cuda.Stream()", "torch.nn.parallel.DistributedDataParallel(m)",
    "sys._getframe()", "import sys\nsys.modules['x']", "import sys\nsys.settrace(f)", "import sys\nsys.stdout = x",
    "globals()", "eval('x')", "exec('x')", "dir()", "vars()", "vars(x)['y'] = 1", "y = vars(x)", "x.__dict__",
    "getattr(x, name)", "getattr(x, '__dict__')", "setattr(x, name, 1)", "f = setattr", "torch.relu = f", "np.mean = f",
    "torch.Tensor.mean = f", "x.__add__ = f", "type('A', (), {})", "c = type(x)", "type(x).f()", "x.__class__ = A",
    "class A(torch.Tensor):\n    pass", "class A(nn.Parameter):\n    pass", "T = torch.Tensor\nclass A(T):\n    pass",
    "class A(metaclass=B):\n    pass", "class A:\n    def __del__(self):\n        pass", "class A(f()):\n    pass",
    "class A:\n    def __torch_function__(self):\n        pass", "with warnings.catch_warnings(record=True):\n    pass",
    "np.seterrcall(f)", "np.seterr(all='call')", "stack.enter_context(x)", "x.__enter__()", "x.f_locals",
    "compile(x, 'a', 'exec')", "import operator\nf(operator)", "operator.methodcaller('x')", "import __main__",
    "x.copy_(y, non_blocking=True)", "y = x.to('cpu', non_blocking=True)", "x.pin_memory()",
    "torch.empty(3, pin_memory=True)", "parser.parse_args(namespace=x)", "parser.parse_args([], x)",
    "from .train import x", "from concurrent import __main__",
]  # fmt: skip


@pytest.mark.parametrize("text", WATCHED)
def test_what_may_see_it(tmp_path, text):
    assert watched_by(project_of(tmp_path, train=HEAD + text)) != ""


def test_files_that_are_not_read(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert watched_by(project_of(tmp_path, train="import broken\n")) == "not all files of the project are read"


def test_a_file_by_the_name_of_a_library(tmp_path):
    assert "library's name" in watched_by(project_of(tmp_path, train="import random\n", random="x = 1\n"))


def test_modules_that_are_handed_on(tmp_path):
    assert watched_by(project_of(tmp_path, train="import lib\nlib.f()\n", lib="x = 1\n")) == ""
    assert "handed on" in watched_by(project_of(tmp_path, train="import lib\nm = lib\n", lib="x = 1\n"))


@pytest.mark.parametrize(
    "text",
    [
        "from torch.nn.utils import parametrize",
        "torch.nn.utils.spectral_norm(x)",
        "class A(nn.Module):\n    def parameters(self):\n        pass",
        "class A(nn.Module):\n    parameters = f",
        "class A(nn.Module):\n    def __init__(self):\n        self.named_modules = f",
        "x._parameters['a'] = 1",
    ],
)
def test_what_makes_parameters(tmp_path, text):
    project = project_of(tmp_path, train=HEAD + text)
    assert watched_by(project) == ""
    assert watched_by(project, models=True) != ""


def test_every_module_of_torch_is_judged():
    import torch

    public = {each.name for each in pkgutil.iter_modules(torch.__path__) if not each.name.startswith("_")}
    assert public - MODULES_OF_TORCH - WATCHING_MODULES == {"torch_version"} - MODULES_OF_TORCH
    assert MODULES_OF_TORCH.isdisjoint(WATCHING_MODULES)


METER = "class Meter:\n    def __init__(self):\n        self.sum = 0\n    def update(self, x):\n        self.sum += x\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (METER + "m = Meter()\nm.update(3)\n", set()),
        (METER + "class Other(Meter):\n    pass\nm = Other()\n", set()),
        (METER + "def f(m: Meter):\n    return isinstance(m, Meter)\n", set()),
        (METER + "Meter.update(x, 3)\n", {"sum"}),
        (METER + "M = Meter\n", {"sum"}),
        (METER + "class Other(Meter):\n    pass\nM = Other\n", {"sum"}),
        (METER.replace("    def update", "    @f\n    def update"), {"sum"}),
        (METER.replace("self.sum +=", "self = x\n        self.sum +="), {"sum"}),
        ("x.mean = f\nsetattr(x, 'item', g)\ndel y.norm\n", {"mean", "item", "norm"}),
    ],
)
def test_names_that_are_set(tmp_path, text, found):
    assert patched_names(project_of(tmp_path, train=text)) == found
