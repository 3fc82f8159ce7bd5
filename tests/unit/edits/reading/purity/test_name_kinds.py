"""What a name stands for at its place."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("it()", NameKind.BUILTIN),
        ("def it(): pass\nit()", NameKind.FUNCTION),
        ("class it: pass\nit()", NameKind.CLASS),
        ("import it\nit()", NameKind.IMPORT),
        ("it = 1\nit()", NameKind.VARIABLE),
        ("def it(): pass\nit = 1\nit()", NameKind.VARIABLE),
        ("from math import *\nit()", NameKind.VARIABLE),
        ("class C:\n    def it(self): pass\nit()", NameKind.BUILTIN),
        ("class C:\n    def it(self): it()", NameKind.BUILTIN),
        ("def it(): pass\ndef f():\n    it()", NameKind.FUNCTION),
        ("def it(): pass\ndef f(it):\n    it()", NameKind.VARIABLE),
        ("def it(): pass\ndef f():\n    def it(): pass\n    it()", NameKind.FUNCTION),
        ("def it(): pass\ndef f():\n    global it\n    it = 1\nit()", NameKind.VARIABLE),
        ("def it(): pass\ndef f():\n    it = 1\nit()", NameKind.FUNCTION),
        ("def f():\n    it = 1\n    def g():\n        it()", NameKind.VARIABLE),
        ("try: pass\nexcept E as it: it()", NameKind.VARIABLE),
        ("match x:\n    case [it]: it()", NameKind.VARIABLE),
    ],
)
def test_names_by_their_scopes(tmp_path, text, kind):
    source = project_of(tmp_path, train=text).script
    call = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)][-1]
    assert NameKinds().kind(source, call.func) is kind
