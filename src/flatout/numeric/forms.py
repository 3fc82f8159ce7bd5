"""A translated piece of Python as machine code for one combination of kinds, by numba."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import types

from flatout.numeric.arithmetic import Untranslatable
from flatout.numeric.kinds import BOOL, INT, Kind, is_array, is_whole, packed, restored
from flatout.numeric.known_functions import TYPES
from flatout.numeric.operations import operations
from flatout.numeric.scope import TAGS, Typed
from flatout.numeric.translation import Translation, translated

__all__ = ["Form", "built"]

_BY_TAG = {tag: kind for kind, tag in TAGS.items()}
_NAMES: dict[str, Any] = {
    "np": np,
    "math": math,
    "error": OverflowError,
    "range": range,
    "len": len,
    "list": list,
    **{f"type{name}": np.dtype(short).type for name, short in TYPES.items()},
}


@dataclass(frozen=True)
class Form:
    """Machine code, what it is given in which order, and how its results become Python's."""

    call: Any
    kinds: tuple[Kind, ...]
    written: tuple[int, ...]  # places of arguments whose memory it writes to
    arrays: tuple[int, ...]
    returned: tuple[tuple[Kind, ...] | int, ...]
    single: bool
    of_numpy: bool  # it does arithmetic with numpy's floats

    def packed(self, values: Sequence[Any]) -> list[Any]:
        """Return arguments as the machine code takes them.

        Raises:
            OverflowError: one is too large for it.
        """
        return [packed(value, kind) for value, kind in zip(values, self.kinds, strict=True)]

    def tell_written(self, values: Sequence[Any]) -> None:
        """Tell torch which tensors have been written to, as writing by torch does."""
        for at in self.written:
            if self.kinds[at].name == "tensor":
                from torch.autograd.graph import increment_version

                increment_version(values[at])

    def restored(self, result: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return what Python would have returned; `values` are the arguments as Python has them."""
        found = []
        for at, kinds in enumerate(self.returned):
            if isinstance(kinds, int):
                found.append(values[kinds])
                continue
            kind = kinds[0] if len(kinds) == 1 else _BY_TAG[result[2 * at + 1]]
            found.append(restored(result[2 * at], kind))
        if self.single:
            return found[0] if found else None
        return tuple(found)


def built(
    body: Sequence[ast.stmt], names: Sequence[str], kinds: Sequence[Kind], outer: Mapping[str, Kind | str]
) -> tuple[Form, list[str]]:
    """Return the machine code of a function's body, and the outer names that are arguments of it, behind the others.

    `names` and `kinds`: its variables at the start; `outer`: what is read besides, a known function by its name.

    Raises:
        Untranslatable: it cannot be compiled so that it gives what Python gives.
    """
    found: dict[str, Typed | str] = {}
    values = []
    for number, (dotted, kind) in enumerate(outer.items()):
        if isinstance(kind, str):
            found[dotted] = kind
        else:
            origins = frozenset({f"outer_{number}__"}) if is_array(kind) else frozenset[str]()
            parts: tuple[Typed, ...] = ()
            node = ast.Name(f"outer_{number}__", ast.Load())
            if kind.name == "tuple":
                at = [ast.Subscript(node, ast.Constant(place), ast.Load()) for place in range(len(kind.inner))]
                parts = tuple(Typed(each, frozenset({of})) for each, of in zip(at, kind.inner, strict=True))
            found[dotted] = Typed(node, frozenset({kind}), None, parts, origins, bool(origins))
            values.append((dotted, kind))
    made = translated(body, dict(zip(names, kinds, strict=True)), found, "compiled")
    whole = [*kinds, *(kind for _, kind in values)]
    return _form(made, whole), [dotted for dotted, _ in values]


def _form(made: Translation, kinds: Sequence[Kind]) -> Form:
    parameters = [each.arg.removesuffix("__given__") for each in made.function.args.args]
    place = {name: at for at, name in enumerate(parameters)}
    return Form(
        call=_machine_code(made.function, tuple(map(_type_of, kinds))),
        kinds=tuple(kinds),
        written=tuple(sorted(place[name] for name in made.written)),
        arrays=tuple(at for at, kind in enumerate(kinds) if is_array(kind)),
        returned=tuple(place[each] if isinstance(each, str) else each for each in made.returned),
        single=made.single,
        of_numpy=any(
            isinstance(each, ast.Name) and each.id.startswith("flatout_numpy") for each in ast.walk(made.function)
        ),
    )


def _machine_code(function: ast.FunctionDef, signature: tuple[Any, ...]) -> Any:
    module = ast.fix_missing_locations(ast.Module([function], []))
    space = {f"flatout_{name}": value for name, value in (_NAMES | operations()).items()}
    exec(compile(module, "<compiled by flatout>", "exec"), space)
    dispatcher = numba.njit(boundscheck=True, error_model="python", nogil=False)(space[function.name])
    try:
        dispatcher.compile(signature)
    except numba.core.errors.NumbaError as error:
        raise Untranslatable(f"numba does not compile it ({type(error).__name__})") from error
    dispatcher.disable_compile()
    return dispatcher


def _type_of(kind: Kind) -> Any:
    """Return numba's type of an argument."""
    if is_array(kind):
        dtype = numba.from_dtype(np.dtype("u1" if kind.dtype == "b1" else kind.dtype))  # see `kinds.packed`
        layout: Any = kind.layout.upper()
        return types.Array(dtype, kind.ndim, layout, readonly=kind.layout.islower())
    if kind.name == "tuple":
        inner = tuple(map(_type_of, kind.inner))
        made: Any = types.Tuple  # of one type, or of several
        return made.from_types(inner)
    if kind.name in ("listed", "text"):
        element = kind.inner[0] if kind.inner else INT
        return types.Array(_type_of(element), 1, "C")
    if kind == BOOL or kind.dtype == "b1":
        return types.boolean
    if is_whole(kind):
        return types.int64
    return types.float32 if kind.dtype == "f4" else types.float64
