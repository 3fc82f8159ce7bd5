"""What kind of value a call gives: functions and methods of Python, NumPy, torch and Pillow that decode."""

import ast
from collections.abc import Callable, Mapping, Sequence

from flatout.edits.cures.kept_files.file_reads import ARRAY, TENSOR, file_read
from flatout.edits.cures.kept_files.value_kinds import ATOM, DEEP, NUMBER, UNKNOWN, Value, ValueKind, joined
from flatout.edits.reading.effects.pure_calls import MAKERS, NUMBER_BUILTINS, words
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["MOVES", "STANDING_IN", "CallKinds", "changed_by"]

MOVES = frozenset({"close", "seek", "load", "rewind", "setpos"})  # methods of handles whose value nobody takes
_ADDS = {"append": 1, "add": 1, "insert": 2, "extend": 1, "update": 1, "sort": 0, "reverse": 0}
_LAZY, _IMAGE, _LIST = Value(ValueKind.LAZY), Value(ValueKind.IMAGE), Value(ValueKind.LIST)
_OF_FILE = words(
    "read readline readframes getnframes getframerate getsampwidth getnchannels getparams tell getcomptype"
)
_OF_IMAGE = words("convert resize crop rotate transpose copy quantize reduce")
_OF_TEXT = words(
    "capitalize casefold count decode encode endswith expandtabs find format format_map hex index isalnum isalpha "
    "isdigit islower isspace isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex "
    "rjust rpartition rstrip startswith strip swapcase title translate upper zfill as_posix is_integer bit_length"
)
_LISTS = words("split rsplit splitlines tolist")
_SAME = words("reshape ravel transpose squeeze unsqueeze view permute swapaxes contiguous t flatten")
_CAST = words("float double long int half bool byte short to type")
_NEW = MAKERS - {"array", "tensor", "full", "sort"} | words(
    "astype clone copy numpy clip clamp repeat abs round max min amax amin cumsum div mul add sub permute take"
)
_STANDING = {
    "json.load": DEEP,
    "json.loads": DEEP,
    "csv.reader": Value(ValueKind.LAZY, (_LIST,)),
    "csv.DictReader": Value(ValueKind.LAZY, (DEEP,)),
    "struct.unpack": ATOM,
    "struct.unpack_from": ATOM,
    "struct.iter_unpack": Value(ValueKind.LAZY, (ATOM,)),
    "array.array": DEEP,
    "numpy.frombuffer": Value(ValueKind.FROZEN),
    "os.path.basename": ATOM,
    "os.path.splitext": ATOM,
    "os.path.join": ATOM,
    "pathlib.Path": ATOM,
    "unicodedata.normalize": ATOM,
    "re.findall": _LIST,
    "re.split": _LIST,
    "re.sub": ATOM,
    "PIL.ImageOps.grayscale": _IMAGE,
    "torchvision.transforms.functional.to_tensor": TENSOR,
    "torchvision.transforms.functional.pil_to_tensor": TENSOR,
    "cv2.cvtColor": ARRAY,
    "cv2.resize": ARRAY,
}
STANDING_IN = frozenset(_STANDING)
"""Functions that only compute, and are in no list of such ones."""

_TO_ARRAY = frozenset({"numpy.array", "numpy.asarray", "numpy.ascontiguousarray", "numpy.fromiter"})
_TO_TENSOR = frozenset({"torch.tensor", "torch.as_tensor", "torch.from_numpy"})
_Of = Callable[[ast.expr, Mapping[str, Value]], Value]
_Called = Callable[[Function, SourceFile, Sequence[Value]], Value]
_NUMBERS = words("int float len ord round bool abs hash")


def changed_by(method: str, given: Sequence[Value]) -> Value | None:
    """Return what a method puts into what it is called on, None where it is none that is followed."""
    if method not in _ADDS or len(given) != _ADDS[method]:
        return None
    if not given:
        return ATOM
    return given[-1].item if method in ("extend", "update") else given[-1]


class CallKinds:
    """The kinds of what calls give."""

    def __init__(self, project: Project, source: SourceFile, names: NameKinds, of: _Of, called: _Called) -> None:
        """`of` tells the kinds of arguments; `called`: what a function of the user's gives."""
        self._project, self._source, self._names = project, source, names
        self._kind_of, self._called = of, called

    def of(self, call: ast.Call, known: Mapping[str, Value]) -> Value:
        """Return what a call gives."""
        read = file_read(self._source, self._names, call)
        if read is not None:
            return read.gives
        dotted = self._source.names.dotted(call.func)
        given = [self._kind_of(each, known) for each in call.args if not isinstance(each, ast.Starred)]
        if len(given) < len(call.args) or any(each.arg is None for each in call.keywords):
            return UNKNOWN
        if dotted:
            return self._of_library(call, dotted, given)
        if isinstance(call.func, ast.Name):
            return self._by_name(call, call.func, given, known)
        if isinstance(call.func, ast.Attribute):
            return self._method(call, call.func, known)
        return UNKNOWN

    def _by_name(self, call: ast.Call, func: ast.Name, given: Sequence[Value], known: Mapping[str, Value]) -> Value:
        kind, name = self._names.kind(self._source, func), func.id
        if kind is NameKind.FUNCTION and not call.keywords:
            return self._of_users(name, given)
        if kind is not NameKind.BUILTIN or name in known:
            return UNKNOWN
        first = given[0] if given else ATOM
        if name in NUMBER_BUILTINS:
            return _number(name, first)
        if name in ("zip", "enumerate"):
            items = tuple(each.item for each in given)
            return Value(ValueKind.LAZY, (Value(ValueKind.DEEP, (ATOM, *items) if name == "enumerate" else items),))
        if name == "map":
            return Value(ValueKind.LAZY, (self._mapped(call.args[0], given),)) if len(given) > 1 else UNKNOWN
        if name in ("iter", "reversed", "filter"):
            return Value(ValueKind.LAZY, ((given[-1] if given else UNKNOWN).item,))
        if name in ("list", "sorted", "tuple", "set", "frozenset", "dict", "sum", "min", "max"):
            if len(given) > 1 and name in ("min", "max"):
                for each in given[1:]:
                    first = joined(first, each)
                return first
            return _gathered(name, first, bool(given))
        return UNKNOWN

    def _mapped(self, function: ast.expr, given: Sequence[Value]) -> Value:
        """Return what `map` gives in each turn."""
        if isinstance(function, ast.Name):
            kind = self._names.kind(self._source, function)
            if kind is NameKind.FUNCTION:
                return self._of_users(function.id, [each.item for each in given[1:]])
            is_number = kind is NameKind.BUILTIN and function.id in (*_NUMBERS, "str", "chr")
            return (NUMBER if function.id in _NUMBERS else ATOM) if is_number else UNKNOWN
        is_text = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "str"
        return ATOM if is_text and function.attr in _OF_TEXT else UNKNOWN  # type: ignore[attr-defined]

    def _of_users(self, name: str, given: Sequence[Value]) -> Value:
        alike = self._project.functions.get(name, ())
        return self._called(alike[0][1], alike[0][0], given) if len(alike) == 1 else UNKNOWN

    def _method(self, call: ast.Call, func: ast.Attribute, known: Mapping[str, Value]) -> Value:
        whole, name = self._kind_of(func.value, known), func.attr
        if whole.kind is ValueKind.UNKNOWN or whole.opaque:
            return UNKNOWN
        if whole.kind in (ValueKind.LAZY, ValueKind.IMAGE):
            if name == "readlines":
                return _LIST
            return ATOM if name in _OF_FILE else _IMAGE if name in _OF_IMAGE else UNKNOWN
        if whole.is_numeric:
            return _of_numbers(call, whole, name)
        if name in _OF_TEXT:
            return ATOM if name != "replace" or len(call.args) > 1 else UNKNOWN  # of a path: it moves the file
        if name in _LISTS:
            return _LIST if name != "tolist" else DEEP
        if name in ("keys", "values", "items"):
            item = Value(ValueKind.DEEP, (ATOM, whole.item)) if name == "items" else whole.item
            return Value(ValueKind.LAZY, (ATOM if name == "keys" else item,))
        if name == "get":
            others = [self._kind_of(each, known) for each in call.args[1:]]
            return whole.item if all(each.kind is ValueKind.ATOM for each in others) else UNKNOWN
        return whole if name == "copy" and whole.kind in (ValueKind.LIST, ValueKind.TABLE) else UNKNOWN

    def _of_library(self, call: ast.Call, dotted: str, given: Sequence[Value]) -> Value:
        root, _, name = dotted.rpartition(".")
        first = given[0] if given else ATOM
        if UNKNOWN in given:
            return UNKNOWN
        if dotted in _STANDING:
            return _STANDING[dotted] if dotted != "re.sub" or _is_text(call.args[1:2]) else UNKNOWN
        if dotted in _TO_ARRAY:
            return _to_array(call, dotted, first)
        if dotted in _TO_TENSOR:
            device = any(each.arg in ("device", "requires_grad", "pin_memory") for each in call.keywords)
            is_new = dotted == "torch.tensor" or first.kind not in (
                ValueKind.FROZEN,
                ValueKind.VIEW,
                ValueKind.MEMBER,
                ValueKind.TENSOR,
            )
            return TENSOR if is_new and not device and first.kind is not ValueKind.LAZY else UNKNOWN
        if root in ("numpy", "torch") and name in _NEW | MAKERS:
            return TENSOR if root == "torch" else ARRAY
        if root == "math" or dotted in ("numpy.float32", "numpy.int64", "numpy.float64"):
            return ATOM
        alike = self._project.functions.get(name, ())
        is_ours = len(alike) == 1 and alike[0][0].path.stem == root.rpartition(".")[2]
        return self._of_users(name, given) if is_ours and not call.keywords else UNKNOWN


_LAZY_RANGE = Value(ValueKind.LAZY, (NUMBER,))


def _number(name: str, first: Value) -> Value:
    """Return what a function gives that makes numbers or text of most things."""
    if name == "range":
        return _LAZY_RANGE
    if first.kind is ValueKind.UNKNOWN:
        return UNKNOWN
    if name in ("abs", "pow", "round", "divmod") and first.kind is not ValueKind.ATOM:
        return Value(first.kind if first.kind is ValueKind.TENSOR else ValueKind.ARRAY) if first.is_numeric else UNKNOWN
    return NUMBER if name in _NUMBERS else ATOM


def _gathered(name: str, first: Value, is_given: bool) -> Value:
    """Return what a function gives that goes through something: `list(x)`, `sum(x)`."""
    if first.kind is ValueKind.UNKNOWN or first.item.kind in (ValueKind.UNKNOWN, ValueKind.LAZY):
        return UNKNOWN
    if first.is_numeric and name in ("sum", "min", "max"):
        return ARRAY
    if not is_given or first.item.kind is ValueKind.ATOM:
        flat = {"list": ValueKind.LIST, "sorted": ValueKind.LIST, "set": ValueKind.TABLE, "dict": ValueKind.TABLE}
        return Value(flat.get(name, ValueKind.ATOM), (), first.slots and name in ("list", "sorted"), first.item.numbers)
    if first.item.opaque:
        return UNKNOWN
    pairs = first.item.items
    if name == "dict" and len(pairs) == 2 and all(each.kind is ValueKind.ATOM for each in pairs):
        return Value(ValueKind.TABLE)
    return DEEP


def _of_numbers(call: ast.Call, whole: Value, name: str) -> Value:
    """Return what a method of an array or a tensor gives."""
    is_tensor = whole.kind is ValueKind.TENSOR
    if name == "tolist":
        return DEEP
    if name in ("item", "numel", "dim"):
        return ATOM
    if name in _SAME:
        return whole
    if name in _CAST:
        to = [*call.args, *(each.value for each in call.keywords)]
        return (
            whole
            if all(ast.unparse(each).startswith("torch.") and "device" not in ast.unparse(each) for each in to)
            else UNKNOWN
        )
    if name == "numpy" and is_tensor:
        return ARRAY
    if name == "astype" and any(each.arg == "copy" for each in call.keywords):
        return whole
    if name in _NEW:
        return TENSOR if is_tensor else ARRAY
    return UNKNOWN


def _to_array(call: ast.Call, dotted: str, first: Value) -> Value:
    named = {each.arg: each.value for each in call.keywords}
    if "copy" in named or "like" in named:
        return UNKNOWN
    if first.opaque or (first.kind is ValueKind.DEEP and first.items):
        return UNKNOWN
    if first.kind is ValueKind.DEEP and not first.numbers:
        has_type = "dtype" in named or len(call.args) > 1
        return ARRAY if has_type and "object" not in ast.unparse(call) else DEEP
    if dotted in ("numpy.asarray", "numpy.ascontiguousarray"):
        if first.kind in (ValueKind.LAZY, ValueKind.IMAGE):
            return Value(ValueKind.FROZEN) if not named and len(call.args) == 1 else UNKNOWN
        if first.kind in (ValueKind.FROZEN, ValueKind.VIEW, ValueKind.MEMBER, ValueKind.TENSOR):
            return first
    return ARRAY


def _is_text(nodes: Sequence[ast.expr]) -> bool:
    return bool(nodes) and all(isinstance(each, ast.Constant) for each in nodes)
