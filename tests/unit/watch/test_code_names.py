"""Names that the user's own code reads, from its bytecode."""

import importlib
import json
import operator
import sys
import textwrap

from flatout.watch.code_names import Names

SCOPE = {"__name__": "train", "np": operator, "scale": 2.0}


def function(source, name="f", scope=SCOPE):
    made = dict(scope)
    exec(source, made)
    return made[name]


def read(source, **scope):
    made = function(source, scope={**SCOPE, **scope})
    names = Names()
    return names, names.read(made.__code__), made.__globals__


def test_globals_attributes_and_imports_are_told_apart():
    names, found, _ = read("def f(self):\n    import json\n    return np.sin(self.angle) * scale")
    assert {"np", "scale"} <= found.names
    assert {"sin", "angle"} <= found.attributes
    assert found.imported == {"json"}
    assert {"np", "scale"} <= names.globals
    assert "angle" in names.of_classes
    assert "offset" not in names.of_classes


def test_names_that_are_stored_are_those_of_the_function_alone():
    names, found, _ = read("def f():\n    global counter\n    counter = 1")
    assert "counter" in found.names
    assert "counter" not in names.globals


def test_modules_are_those_of_the_names_and_of_the_imports():
    _, found, scope = read("def f():\n    import json\n    return np.sin, scale")
    assert found.modules(scope) == [operator, json]


def test_modules_that_own_modules_name_are_followed(tmp_path, monkeypatch):
    (tmp_path / "rows_of_mine.py").write_text("import json as more")
    monkeypatch.syspath_prepend(tmp_path)
    outer = importlib.import_module("rows_of_mine")
    _, found, scope = read("def f():\n    import rows_of_mine\n    return rows_of_mine.more.table")
    assert found.modules(scope) == [outer, json]
    monkeypatch.delitem(sys.modules, "rows_of_mine")


def test_a_module_of_the_users_that_nobody_has_imported_yet_is_to_come(tmp_path, monkeypatch):
    (tmp_path / "rows_to_come.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    _, found, scope = read("def f():\n    import rows_to_come, json")
    assert found.to_come(scope) == {"rows_to_come"}


def test_a_relative_import_is_looked_for_in_all_packages_above():
    _, found, scope = read("def f():\n    from .rows import table", __package__="a.b")
    assert {"a.rows", "a.b.rows"} <= found._imports(scope)


def test_attributes_by_unwritten_names_make_every_attribute_of_an_object_count():
    names, _, _ = read("def f(self):\n    return self.angle")
    assert ("angle" in names.of_instances, "offset" in names.of_instances) == (True, False)
    names.read(function("def f(self, name):\n    return getattr(self, name)").__code__)
    assert names.dynamic
    assert "offset" in names.of_instances
    assert "offset" in names.of_modules
    assert "__name__" not in names.of_modules
    assert "__getattr__" in names.of_modules


def test_a_copy_is_dynamic_as_a_name_and_not_as_a_method():
    assert not read("def f(self):\n    return self.rows.copy()")[0].dynamic
    assert read("def f(self):\n    return copy(self)")[0].dynamic


def test_what_reads_globals_by_unwritten_names_is_named():
    assert read("def f():\n    return eval('scale')")[0].unwritten == "eval"
    assert read("def f():\n    return sys.modules['rows']")[0].unwritten == "sys.modules"
    assert read("def f():\n    return sys.argv")[0].unwritten == ""
    assert read("def f():\n    return torch.is_grad_enabled()")[0].unwritten == "is_grad_enabled"


def test_of_methods_that_python_looks_up_those_count_that_are_called():
    names = Names()
    assert "__getitem__" in names.of_classes
    assert "__init__" not in names.of_classes
    assert 3 not in names.of_classes


def test_the_methods_of_an_installed_class_name_attributes_of_the_object():
    names = Names()
    names.read_class(textwrap.TextWrapper)
    assert "placeholder" in names.attributes
    names.add({"more"})
    assert "more" in names.of_instances
