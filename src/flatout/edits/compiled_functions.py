"""The decorator that compiles what is numeric in a function, written above its `def`."""

import ast

import libcst as cst

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import OnBlock
from flatout.edits.written_edit import Context, WrittenEdit, with_changes, with_import
from flatout.fixes.core.edit import CompiledFunctions
from flatout.fixes.source.decorated import definitions, named_functions

__all__ = ["compiled_functions"]

_CODE = "flatout.compiled"


def compiled_functions(piece: CompiledFunctions, project: Project, context: Context) -> WrittenEdit:
    """Write `@flatout.compiled` on the functions that the settings name, and `import flatout` in their files."""
    del piece
    there, left = 0, []
    blocks: list[tuple[SourceFile, int, OnBlock]] = []
    for name, functions in named_functions(str(context.settings.get("functions", ""))).items():
        source = next((each for each in project.sources if _is(each, project, name)), None)
        known = dict(definitions(source.tree)) if source is not None else {}
        for function in functions:
            node = known.get(function)
            if source is None or node is None:
                left.append(f"there is no function {function} in {name} any more")
            elif any(ast.unparse(each) == _CODE for each in node.decorator_list):
                there += 1
            else:
                blocks.append((source, node.lineno, _decorated))
    done = with_changes(project, blocks=blocks)
    for place in sorted({project.sources.index(source) for source, _, _ in blocks}):
        done = with_import(done, place, "flatout")
    return WrittenEdit(done, changed=len(blocks), there=there, left=tuple(left))


def _is(source: SourceFile, project: Project, name: str) -> bool:
    return source.shown == name or source.path == project.script.path.parent / name


def _decorated(node: cst.BaseCompoundStatement, module: cst.Module) -> cst.BaseStatement:
    del module
    if not isinstance(node, cst.FunctionDef):
        return node
    made = cst.Decorator(cst.parse_expression(_CODE))
    return node.with_changes(decorators=[*node.decorators, made])
