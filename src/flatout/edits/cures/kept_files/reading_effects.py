"""Whether a block that reads a file does anything besides: told by `Effects` for the function that it would become.

Calls that read a file stand for plain values then: they are known to do nothing else.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence

from flatout.edits.cures.kept_files.call_kinds import MOVES, STANDING_IN
from flatout.edits.cures.kept_files.file_blocks import FileBlock
from flatout.edits.cures.kept_files.file_reads import file_read
from flatout.edits.cures.kept_files.module_constants import ModuleConstants
from flatout.edits.cures.kept_files.value_kinds import ValueKind
from flatout.edits.reading.effects.effects import Effects
from flatout.edits.reading.effects.pure_calls import words
from flatout.edits.reading.effects.set_attributes import SetAttributes
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.name_kinds import NameKind, NameKinds
from flatout.edits.reading.source_file import SourceFile

__all__ = ["effect_of"]

_NAME, _OWN = "kept_block_of_flatout", "_of_block"
_TO_TEXT = words("encode decode hex swapcase as_posix format_map")
_OF_FILES = words("read readline readframes getparams read_bytes read_text")
_TO_LIST = words("readlines open convert resize crop rotate transpose")
_TO_NUMBER = words("getnframes getframerate getsampwidth getnchannels tell")
_MOCKS = frozenset({"unittest.mock", "mock", "pytest"})
_MAPPED = frozenset({"memmap", "open_memmap", "mmap"})
_OF_TORCH = frozenset({"set_default_dtype", "set_default_device", "set_default_tensor_type"})


def effect_of(project: Project, block: FileBlock, constants: ModuleConstants) -> str:
    """Return what a block does besides reading and decoding one file, or what else it depends on; "" for nothing."""
    names = NameKinds()
    return next(_outside(project, block, names), "") or next(_inside(project, block, constants, names), "")


def _outside(project: Project, block: FileBlock, names: NameKinds) -> Iterator[str]:
    """Yield what else in the project may change what the block's calls mean."""
    replaced = SetAttributes(project).on_modules | {*_set_by_name(project)}
    for part in block.parts:
        for node in ast.walk(part):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in replaced:
                yield f"{name} is set in the script"
    for source in project.sources:
        imports = {*source.names.imports.values()}
        if any(each in _MOCKS or each.rpartition(".")[0] in _MOCKS for each in imports):
            yield "functions may be replaced by those of a test"
    tensors = any(each.kind is ValueKind.TENSOR for each in block.gives.values())
    for source, node in project.nodes(ast.Attribute, ast.Name, ast.withitem, ast.Constant):
        yield from filter(None, [_of_process(node), _of_tensors(source, node) if tensors else ""])


def _of_process(node: ast.AST) -> str:
    """Return what a node may change of what is read of a file, or why its times do not show it."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    if name == "setlocale":
        return "setlocale() changes how text is read"
    if name in _MAPPED:
        return f"what is written by {name} may show in no time of the file"
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return f"{node.value} is no plain file" if is_text and node.value.startswith(("/proc", "/sys")) else ""  # type: ignore[attr-defined]


def _of_tensors(source: SourceFile, node: ast.AST) -> str:
    """Return what a node may change of new tensors."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    if name in _OF_TORCH:
        return f"{name}() changes what torch.tensor() makes"
    call = node.context_expr if isinstance(node, ast.withitem) else None
    is_device = isinstance(call, ast.Call) and source.names.dotted(call.func) == "torch.device"
    return "`with torch.device(...)` changes where tensors are made" if is_device else ""


def _set_by_name(project: Project) -> Iterator[str]:
    for _, call in project.nodes(ast.Call):
        is_set = isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) > 1
        if is_set and isinstance(call.args[1], ast.Constant):
            yield str(call.args[1].value)


def _inside(project: Project, block: FileBlock, constants: ModuleConstants, names: NameKinds) -> Iterator[str]:
    source = block.source
    plain = _PlainFunctions(project, source, names, constants)
    made = plain.of(block)
    text = "\n\n\n".join(["\n".join(source.lines), *(ast.unparse(ast.fix_missing_locations(each)) for each in made)])
    changed = project.with_code(source.path, f"{text}\n".encode())
    place = changed.sources[project.sources.index(source)]
    effects = Effects(changed)
    yield (
        effects.of(place, ast.Call(ast.Name(_NAME, ast.Load()), [], [])).replace(_OWN, "").removeprefix(f"{_NAME}(): ")
    )
    reached = effects.reached(place, ast.Name(_NAME, ast.Load()))
    for name in dict.fromkeys(each.name.removesuffix(_OWN) for each in reached):
        if name != _NAME:
            yield from _dependencies(project, name, constants, names)


def _dependencies(project: Project, called: str, constants: ModuleConstants, names: NameKinds) -> Iterator[str]:
    """Yield what a function of the user's reads that may change."""
    alike = project.functions.get(called, ())
    if len(alike) != 1:
        yield f"{called}() is one of several functions"
        return
    source, function = alike[0]
    if source.scope(function) is not source.tree:
        yield f"{called}() is a method, or stands in a function"
        return
    if any(file_read(source, names, each) is not None for each in ast.walk(function)):
        yield f"{called}() reads a file, too"
    own = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    nodes = [each for each in ast.walk(function) if isinstance(each, ast.Name)]
    own |= {each.id for each in nodes if not isinstance(each.ctx, ast.Load)}
    for node in nodes:
        if node.id in own:
            continue
        kind = names.kind(source, node)
        above = source.parents[node]
        dotted = source.names.dotted(above) if isinstance(above, ast.Attribute) else ""
        is_call = isinstance(source.parents[above], ast.Call) and source.parents[above].func is above  # type: ignore[attr-defined]
        if kind is NameKind.CLASS or (
            dotted and not is_call and not dotted.startswith(("torch.", "numpy.", "string."))
        ):
            yield f"{called}() reads {node.id}"
        elif kind is NameKind.VARIABLE and constants.value(source, node.id).kind is ValueKind.UNKNOWN:
            yield f"{called}() reads {node.id}, which may change ({constants.reason})"
        elif kind is NameKind.IMPORT and not dotted and not _stays(project, source, node.id, constants):
            yield f"{called}() reads {node.id}, which may change"


def _stays(project: Project, source: SourceFile, name: str, constants: ModuleConstants) -> bool:
    return _is_function(project, source, name) or constants.value(source, name).kind is not ValueKind.UNKNOWN


def _is_function(project: Project, source: SourceFile, name: str) -> bool:
    """Return whether an imported name is a function of the user's, or anything of a library."""
    root, _, last = source.names.imports.get(name, "").rpartition(".")
    is_ours = any(each.path.stem == root.rpartition(".")[2] for each in project.sources)
    return not is_ours or last in project.functions


# -- as a function without files --------------------------------------------------------------------------------------


class _PlainFunctions:
    """Functions that do what a block does, and those of its file that it calls, with plain values for what is read."""

    def __init__(self, project: Project, source: SourceFile, names: NameKinds, constants: ModuleConstants) -> None:
        self._project, self._source, self._names, self._constants = project, source, names, constants
        self._made: dict[str, ast.FunctionDef] = {}

    def of(self, block: FileBlock) -> list[ast.FunctionDef]:
        """Return the functions, that of the block first."""
        given = [ast.arg(f"{each}{_OWN}") for each in (block.path, *block.inputs)]
        parameters = ast.arguments([], given, None, [], [], None, [])
        body = self._body(block.body, {block.path, *block.inputs}, reads=True)
        made = ast.FunctionDef(_NAME, parameters, body, [])
        made.type_params = []  # type: ignore[attr-defined]
        return [made, *self._made.values()]

    def _body(self, statements: Sequence[ast.stmt], parameters: set[str], *, reads: bool) -> list[ast.stmt]:
        body = [copy.deepcopy(each) for each in statements]
        nodes = [each for part in body for each in ast.walk(part)]
        local = parameters | {each.arg for each in nodes if isinstance(each, ast.arg)}
        local |= {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        made: list[ast.stmt] = []
        for each in body:
            after = _Plain(self._source, self._names, local, self._renames, reads=reads).visit(each)
            made += after if isinstance(after, list) else [after]
        return made or [ast.Pass()]

    def _renames(self, node: ast.Name) -> bool:
        """Return whether a name is given another one here: that of a function, or of what stays as it is."""
        kind = self._names.kind(self._source, node)
        if kind is NameKind.VARIABLE or (kind is NameKind.IMPORT and not self._is_function(node.id)):
            return self._constants.value(self._source, node.id).kind is not ValueKind.UNKNOWN
        alike = self._project.functions.get(node.id, ())
        if kind is not NameKind.FUNCTION or len(alike) != 1 or not isinstance(alike[0][1], ast.FunctionDef):
            return False
        function = alike[0][1]
        if node.id not in self._made:
            self._made[node.id] = plain = copy.deepcopy(function)
            plain.name = f"{node.id}{_OWN}"
            own = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
            plain.body = self._body(function.body, own, reads=False)
            for each in ast.walk(plain.args):
                if isinstance(each, ast.arg):
                    each.arg = f"{each.arg}{_OWN}"
        return True

    def _is_function(self, name: str) -> bool:
        return _is_function(self._project, self._source, name)


class _Plain(ast.NodeTransformer):
    """Puts plain values in the place of what reads and decodes, and gives variables names that nobody else has."""

    def __init__(
        self, source: SourceFile, names: NameKinds, local: set[str], renames: Callable[[ast.Name], bool], *, reads: bool
    ) -> None:
        self._source, self._names, self._local, self._renames, self._reads = source, names, local, renames, reads

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_other = node.id in self._local or self._renames(node)
        return ast.Name(f"{node.id}{_OWN}", node.ctx) if is_other else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(f"{node.arg}{_OWN}")

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        if not self._reads:
            return self.generic_visit(node)
        made: list[ast.stmt] = []
        for item in node.items:
            value = self.visit(item.context_expr)
            target = self.visit(item.optional_vars) if item.optional_vars is not None else ast.Name("_", ast.Store())
            made.append(ast.Assign([target], value))
        for each in node.body:
            after = self.visit(each)
            made += after if isinstance(after, list) else [after]
        return made

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in MOVES
            and self._reads
        ):
            return ast.Expr(ast.Tuple([self.visit(each) for each in call.args], ast.Load()))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        read, dotted = file_read(self._source, self._names, node), self._source.names.dotted(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not dotted else ""
        given: list[ast.expr] = [self.visit(each) for each in node.args]
        given += [self.visit(each.value) for each in node.keywords]
        owner = [self.visit(node.func.value)] if method and isinstance(node.func, ast.Attribute) else []
        whole: list[ast.expr] = [ast.Tuple([*owner, *given], ast.Load())]
        if (read is not None and self._reads) or dotted in STANDING_IN:
            return ast.Call(ast.Name("list", ast.Load()), whole, [])
        of_files = ((_OF_FILES, "str"), (_TO_LIST, "list"), (_TO_NUMBER, "len")) if self._reads else ()
        for methods, stand_in in ((_TO_TEXT, "str"), *of_files):
            if method in methods:
                return ast.Call(ast.Name(stand_in, ast.Load()), whole, [])
        return self.generic_visit(node)
