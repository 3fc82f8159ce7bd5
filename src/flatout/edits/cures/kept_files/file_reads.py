"""Calls that read a file: which argument is its path, and what kind of value they give."""

import ast
from dataclasses import dataclass

from flatout.edits.cures.kept_files.value_kinds import ATOM, NUMBER, Value, ValueKind
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import SourceFile

__all__ = ["ARRAY", "TENSOR", "FileRead", "file_read"]

ARRAY, TENSOR = Value(ValueKind.ARRAY), Value(ValueKind.TENSOR)
_FILE, _IMAGE = Value(ValueKind.LAZY, (ATOM,)), Value(ValueKind.LAZY)
_MODES = frozenset({"r", "rt", "rb", "tr", "br"})
_OPENERS = frozenset({"open", "io.open", "gzip.open", "bz2.open", "lzma.open", "wave.open", "pathlib.Path.open"})
_READERS = {
    "numpy.load": Value(ValueKind.NPY),
    "numpy.loadtxt": ARRAY,
    "numpy.genfromtxt": ARRAY,
    "numpy.fromfile": ARRAY,
    "PIL.Image.open": _IMAGE,
    "torch.load": Value(ValueKind.DEEP, opaque=True),
    "torchvision.io.read_image": TENSOR,
    "torchaudio.load": Value(ValueKind.DEEP, (TENSOR, NUMBER)),
    "soundfile.read": Value(ValueKind.DEEP, (ARRAY, NUMBER)),
    "scipy.io.wavfile.read": Value(ValueKind.DEEP, (NUMBER, ARRAY)),
    **dict.fromkeys(_OPENERS, _FILE),
}
_METHODS = {"read_text": ATOM, "read_bytes": ATOM}
_PACKED = ("gzip.", "bz2.", "lzma.", "numpy.load", "PIL.", "torchaudio.", "soundfile.", "torchvision.", "cv2.")
_REFUSED = frozenset({  # settings that put the reading off, call something, or run what a file says
    "mmap_mode", "mmap", "converters", "opener", "closefd", "object_hook", "object_pairs_hook", "cls", "iterator",
    "chunksize", "pickle_module", "map_location", "sep", "out", "file",
})  # fmt: skip


@dataclass(frozen=True)
class FileRead:
    """A call that reads a file; `is_packed`: the file may be far smaller than what it gives."""

    call: ast.Call
    path: ast.expr
    gives: Value
    is_packed: bool = False


def file_read(source: SourceFile, names: NameKinds, call: ast.AST) -> FileRead | None:
    """Return what a call reads, None where it is no known one."""
    if not isinstance(call, ast.Call) or any(_is_refused(each) for each in call.keywords):
        return None
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    func, dotted = call.func, source.names.dotted(call.func)
    if isinstance(func, ast.Name) and func.id == "open" and names.kind(source, func) is NameKind.BUILTIN:
        dotted = "open"
    elif isinstance(func, ast.Attribute) and not dotted and func.attr in (*_METHODS, "open"):
        return _of_path(source, call, func)
    if dotted not in _READERS or not call.args or (dotted in _OPENERS and not _reads(call)):
        return None
    if dotted == "torch.load" and not _says(call, "weights_only"):
        return None
    return FileRead(call, call.args[0], _READERS[dotted], dotted.startswith(_PACKED))


def _of_path(source: SourceFile, call: ast.Call, func: ast.Attribute) -> FileRead | None:
    """Return what a method of a path reads: `path.read_text()`, `(folder / name).open()`."""
    if func.attr in _METHODS:
        return FileRead(call, func.value, _METHODS[func.attr])
    owner = func.value
    made = isinstance(owner, ast.Call) and source.names.dotted(owner.func) == "pathlib.Path"
    is_path = made or (isinstance(owner, ast.BinOp) and isinstance(owner.op, ast.Div))
    return FileRead(call, owner, _FILE) if is_path and _reads(call, at=0) else None


def _is_refused(keyword: ast.keyword) -> bool:
    if keyword.arg == "allow_pickle":
        return not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    return keyword.arg is None or (keyword.arg in _REFUSED and not _is_none(keyword.value))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _says(call: ast.Call, name: str) -> bool:
    return any(each.arg == name and ast.unparse(each.value) == "True" for each in call.keywords)


def _reads(call: ast.Call, at: int = 1) -> bool:
    """Return whether a file is opened for reading."""
    modes = [*call.args[at : at + 1], *(each.value for each in call.keywords if each.arg == "mode")]
    return all(isinstance(each, ast.Constant) and each.value in _MODES for each in modes)
