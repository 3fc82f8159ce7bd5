"""What makes a project unsuited for arrays that share the memory of tensors, whatever its loops do.

Code that is traced, exported or compiled takes no part of NumPy's in; memory that is given back or grown under an array
is no longer the tensor's; and names of Python's or torch's that are replaced mean something else.
"""

import ast
from collections.abc import Iterator

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.traced_code import TRACED, TRACING_WORDS, dotted_in, words_in
from flatout.edits.reading.source_file import SourceFile

__all__ = ["torch_name", "unsuited"]

_OTHER_MEMORY = frozenset({
    "resize_", "resize_as_", "set_", "set_data", "t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_",
    "as_strided_", "swap_tensors", "share_memory_", "share_memory", "untyped_storage", "storage", "typed_storage",
})  # fmt: skip
_SEEN = frozenset({"_version"})  # the writes of arrays are not counted in it
_AT_ANY_TIME = frozenset({"__del__", "finalize"})
_WARNED = frozenset({"errstate", "seterr"})
_SENT = frozenset({"put", "put_nowait", "send"})
_REPLACED = ("torch", "torch.Tensor", "builtins", "numpy")
_UNSEEN = frozenset({"__builtins__", "builtins", "eval", "exec", "globals", "locals"})
_USED = frozenset({"all", "type", "list"})  # in the lines that are put in


def unsuited(project: Project, source: SourceFile) -> str:
    """Return why no array may take the place of a tensor in a project, "" where nothing speaks against it."""
    for place in project.sources:
        for node in ast.walk(place.tree):
            found = next(_said(project, place, node), "")
            if found:
                return place.at(node, found) if isinstance(node, ast.expr | ast.stmt) else found
    shadowed = _USED & (source.names.bound | {*source.names.imports} | bound_as_words([source.tree]))
    if shadowed:
        return f"`{min(shadowed)}` is not Python's own in {source.shown}"
    return "" if torch_name(source) else f"torch is not imported by its name at the top of {source.shown}"


def torch_name(source: SourceFile) -> str:
    """Return what a file calls torch, everywhere in it."""
    imports = [each for each in source.tree.body if isinstance(each, ast.Import)]
    names = [alias.asname or alias.name for each in imports for alias in each.names]
    known = source.names.imports
    words = bound_as_words([each for each in source.tree.body if each not in imports])
    return next((name for name in names if known.get(name) == "torch" and name not in words), "")


def _said(project: Project, source: SourceFile, node: ast.AST) -> Iterator[str]:
    for dotted in dotted_in(source, node):
        if dotted.startswith(TRACED) and not dotted.startswith("torch.__"):
            yield f"`{dotted}`: what is traced or compiled takes in nothing of NumPy's"
        if dotted.endswith(".*"):
            yield f"`from {dotted[:-2]} import *` may bind any name"
    for word in words_in(source, node):
        yield from _said_of(project, node, word)
    if isinstance(node, ast.keyword) and node.arg == "out":
        yield "`out=` may give a tensor other memory"
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("simplefilter", "filterwarnings")):
        errors = [each for each in ast.walk(node) if isinstance(each, ast.Constant) and each.value == "error"]
        yield from ["warnings are errors"] * bool(errors)
    yield from _stored(source, node)


def _said_of(project: Project, node: ast.AST, word: str) -> Iterator[str]:
    """Yield what is said against a name, an attribute, a keyword or a text."""
    if word in TRACING_WORDS:
        yield f"`{word}`: what is traced or compiled takes in nothing of NumPy's"
    is_sent = word in _SENT and "multiprocessing" in project.mentions
    if not isinstance(node, ast.Name | ast.keyword) and (word in _OTHER_MEMORY or is_sent):
        yield f"`{word}` may give a tensor other memory"
    if word in _SEEN:
        yield f"`{word}` does not show what arrays write"
    if word in _AT_ANY_TIME:
        yield f"`{word}` may run between any two lines"
    if word in _WARNED:
        yield f"`{word}`: numbers of NumPy's may raise errors"
    if word in _UNSEEN and isinstance(node, ast.Name | ast.alias):
        yield f"`{word}` reaches names that are not seen"


def _stored(source: SourceFile, node: ast.AST) -> Iterator[str]:
    """Yield what is said against an attribute that is set: memory, class, or a name of torch's."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        if node.attr == "data" or (node.attr.startswith("__") and node.attr.endswith("__")):
            yield f"`{ast.unparse(node)}` is set"
        if source.names.dotted(node.value) in _REPLACED:
            yield f"`{ast.unparse(node)}` is replaced"
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
        named = node.args[1] if len(node.args) > 1 else None
        of_torch = bool(node.args) and source.names.dotted(node.args[0]).startswith(_REPLACED)
        if of_torch or (isinstance(named, ast.Constant) and str(named.value).startswith(("data", "__"))):
            yield f"`{ast.unparse(node)}` sets what is not followed"
