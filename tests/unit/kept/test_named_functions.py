"""Functions are found by file and name in every module that has them."""

import sys

import pytest
from tests.unit.kept import tables

from flatout.kept.named_functions import FunctionSearch, homes_of

HOME = tables.__name__


@pytest.mark.parametrize("name", ["edges", "Grid.table", "decorated"])
def test_functions_methods_and_what_is_decorated_are_found(name):
    assert list(homes_of(f"tables.py:{name}")) == [f"{HOME}:{name}"]


@pytest.mark.parametrize("name", ["tables.py:missing", "other.py:edges", "tables.py:Grid.size", "tables.py:np.zeros"])
def test_what_is_no_function_of_that_file_is_not_found(name):
    assert list(homes_of(name)) == []


def test_another_name_of_a_function_is_found_once(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "borrowed", tables.edges, raising=False)
    told = []
    search = FunctionSearch(["tables.py:edges"], lambda home, name: told.append(home))
    search.look()
    search.look()
    assert told == [f"{HOME}:edges", f"{__name__}:borrowed"]


def test_it_looks_before_the_first_calls_of_a_function(monkeypatch):
    told = []
    search = FunctionSearch(["tables.py:late"], lambda home, name: told.append(home))
    call = search.before(lambda x: x + 1)
    assert call(1) == 2
    assert told == []
    late = compile("def late(): return 1", tables.__file__, "exec")
    exec(late, vars(tables))
    try:
        assert call(1) == 2
        assert told == [f"{HOME}:late"]
    finally:
        del tables.late
