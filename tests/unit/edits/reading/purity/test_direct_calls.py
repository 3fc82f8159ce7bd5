"""Functions that nothing but calls by their names can run."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.direct_calls import direct_calls, function_called


def calls(folder, text, name="f", **files):
    project = project_of(folder, train=text, **files)
    ((source, function),) = project.functions[name]
    found = direct_calls(project, source, function)
    return None if found is None else [f"{place.path.stem}:{call.lineno}" for place, call in found]


def test_all_calls_are_found(tmp_path):
    assert calls(tmp_path, "def f():\n    pass\nf()\ndef g():\n    return [f() for _ in x]\n") == ["train:3", "train:5"]
    text = "class A:\n    def f(self):\n        self.f()\nA().f()\nother.f()\n"
    assert sorted(calls(tmp_path, text)) == ["train:3", "train:4", "train:5"]
    text = "import lib\nfrom lib import f\nf()\nlib.f()\nmodel.f()\n"
    assert sorted(calls(tmp_path, text, lib="def f():\n    pass\n")) == ["train:3", "train:4"]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    pass\ng = f\n",
        "def f():\n    pass\nrun(f)\n",
        "def f():\n    yield\n",
        "async def f():\n    pass\n",
        "@g\ndef f():\n    pass\n",
        "def f():\n    pass\nf = g(f)\n",
        "def f():\n    pass\nfor f in x:\n    pass\n",
        "def f():\n    pass\nimport g as f\n",
        "def f():\n    pass\nfrom g import f\n",
        "def f():\n    pass\nx.f = g\n",
        "def f():\n    pass\ndef h(f):\n    pass\n",
        "def f():\n    pass\nclass f:\n    pass\n",
        "def f():\n    pass\ndef h():\n    global f\n",
        "def f():\n    pass\ntry:\n    pass\nexcept E as f:\n    pass\n",
        "def g():\n    def f():\n        pass\n    f()\n",
        "class A(B):\n    def f(self):\n        pass\n",
        "class A(metaclass=B):\n    def f(self):\n        pass\n",
        "@b\nclass A:\n    def f(self):\n        pass\n",
        "class A:\n    def f(self):\n        pass\nclass B(A, C):\n    pass\n",
        "class A:\n    def f(self):\n        pass\n    g = f\n",
        "class A:\n    def f(self):\n        pass\nx = a.f\n",
        "class A:\n    def f(self):\n        pass\ng = getattr(a, 'f')\n",
        "class A:\n    def f(self):\n        pass\nmatch a:\n    case A(f=g):\n        pass\n",
    ],
)
def test_it_may_run_in_another_way(tmp_path, text):
    assert calls(tmp_path, text) is None


def test_functions_that_python_or_torch_runs(tmp_path):
    for name in ("forward", "__call__", "__init__"):
        assert calls(tmp_path, f"class A:\n    def {name}(self):\n        pass\n", name) is None


def test_the_function_that_a_call_stands_for(tmp_path):
    lib = "def f():\n    pass\n"

    def stands(text, **files):
        project = project_of(tmp_path, train=text, **files)
        call = project.script.tree.body[-1].value
        return function_called(project, project.script, call.func) is not None

    assert stands(lib + "f()\n")
    assert stands("from lib import f\nf()\n", lib=lib)
    assert not stands("from lib import f\nfrom other import f\nf()\n", lib=lib)
    assert not stands("from other import f\nimport lib\nf()\n", lib=lib, other="from math import sqrt as f\n")
    assert not stands("import lib\nlib.f()\n", lib=lib)
    assert not stands("class A:\n    def f(self):\n        pass\nf()\n")
