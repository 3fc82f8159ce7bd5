"""What in a project may see that a computation is left out, or make another thing of it than its text says.

The default is that something may: a project imports nothing but libraries that are known to leave torch and NumPy as
they are, uses no part of torch that observes operations, and reaches nothing by names that are made at run time.
"""

import ast
import sys
from collections.abc import Iterator

from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import SourceFile

__all__ = ["patched_names", "watched_by"]

_LIBRARIES = words(  # the rest of Python's own can look into frames, modules and the life of objects
    "__future__ abc argparse bisect collections contextlib copy csv dataclasses datetime enum functools glob gzip "
    "hashlib heapq io itertools json logging math numbers operator os pathlib pickle platform pprint random re shutil "
    "socket statistics string struct subprocess sys tempfile textwrap threading time typing typing_extensions uuid "
    "warnings zipfile concurrent queue multiprocessing asyncio tarfile urllib "
    "numpy torch torchvision torchaudio scipy sklearn pandas PIL cv2 skimage matplotlib seaborn tqdm yaml "
    "tensorboard tensorboardX wandb transformers tokenizers datasets timm einops h5py pyarrow requests safetensors nltk"
)
MODULES_OF_TORCH = words(
    "amp autograd backends cuda distributions fft functional linalg mps nn optim random return_types serialization "
    "signal special torch_version types utils version"
)
"""Those that observe no operations, but for parts of theirs that are named below."""
_UTILS = words("data checkpoint tensorboard rnn clip_grad_norm_ clip_grad_value_ parameters_to_vector get_total_norm")
_PARAMETRIZED = words("parametrize parametrizations spectral_norm weight_norm register_parametrization")
_PARTS = {  # of modules that are not safe as a whole
    "autograd": words("Function Variable grad backward set_detect_anomaly detect_anomaly no_grad set_grad_enabled"),
    "utils": _UTILS,
    "nn.utils": _UTILS | _PARAMETRIZED,
}
WATCHING_MODULES = words(
    "accelerator ao compiler contrib cpu csrc distributed export func futures fx hub jit library masked monitor mtia "
    "multiprocessing nativert nested onnx overrides package profiler quantization quasirandom sparse storage testing "
    "xpu headeronly numa"
)
"""The other public ones, which nothing but their name is known of here."""
_WATCHING = frozenset({
    "torch.nn.parallel", "torch.cuda.graph", "torch.cuda.graphs", "torch.cuda.profiler", "torch.cuda.Stream",
    "torch.cuda.stream", "torch.cuda.streams", "torch.cuda.ExternalStream",
})  # fmt: skip
_FORBIDDEN = words(
    "globals locals exec eval dir __import__ __builtins__ __dict__ __setattr__ __delattr__ __getattribute__ __class__ "
    "__code__ __globals__ __closure__ __defaults__ __kwdefaults__ __subclasses__ __mro__ __bases__ __torch_function__ "
    "__torch_dispatch__ __array_function__ __array_ufunc__ __instancecheck__ __subclasscheck__ __del__ __main__ "
    "__annotations__ __array_wrap__ __array_finalize__ __wrapped__ f_locals f_back f_globals f_builtins tb_frame "
    "gi_frame _getframe _current_frames settrace setprofile breakpoint saved_tensors_hooks save_on_cpu captureWarnings "
    "showwarning catch_warnings seterr seterrcall errstate as_subclass _make_subclass _make_wrapper_subclass "
    "methodcaller attrgetter CUDAGraph make_graphed_callables capture_begin __match_args__ redirect_stderr dup2 "
    "enter_context resize_ resize_as_"  # which refuse memory that NumPy has seen
)
_HANDED_ON = frozenset({"torch", "numpy", "sys", "operator", "warnings"} | {f"torch.{e}" for e in MODULES_OF_TORCH})
_TENSORS = words("Tensor Parameter Buffer ndarray UninitializedParameter UninitializedBuffer memmap recarray matrix")
_ITERATORS = words(
    "parameters named_parameters modules named_modules children named_children _named_members _parameters _modules"
)


def watched_by(project: Project, *, models: bool = False) -> str:
    """Return what may see that a computation is left out; `models`: that walks the parameters of models."""
    if project.notes:
        return "not all files of the project are read"
    checks = [_imports, _names, _look_ups, _definitions, _assignments, _transfers, *([_models] if models else [])]
    return next((source.at(node, fact) for check in checks for source, node, fact in check(project)), "")


_Found = tuple[SourceFile, ast.expr | ast.stmt, str]


def _imports(project: Project) -> Iterator[_Found]:
    own = {each.package.partition(".")[0] or each.path.stem for each in project.sources}
    script = project.script.path.stem
    for source, node in project.nodes(ast.Import, ast.ImportFrom):
        names = [each.name for each in node.names]
        base = (getattr(node, "module", "") or "") if isinstance(node, ast.ImportFrom) else ""
        modules = [base, *(each for each in names if each not in project.functions)] if base else names
        if "*" in names:
            yield source, node, "import *"
        if any(script in each.split(".") for each in modules):
            yield source, node, "the script is imported, too"
        if getattr(node, "level", 0):
            continue
        for dotted in [f"{base}.{each}" for each in names] if base else names:
            root = dotted.partition(".")[0]
            is_library = root in _LIBRARIES or root in sys.stdlib_module_names
            if root in own and is_library:
                yield source, node, f"{root} is a library's name"
            elif root not in own and (root not in _LIBRARIES or not _is_quiet(dotted)):
                yield source, node, f"{dotted} may see or change what torch does"


def _is_quiet(dotted: str) -> bool:
    """Return whether a name of a library leads to no part of torch or Python that observes what is done."""
    root, *parts = dotted.split(".")
    if {*parts} & _FORBIDDEN:
        return False
    if root in ("torch", "sys", "warnings", "numpy", "operator"):
        hidden = [each for each in parts if each.startswith("_")]
        if (
            {*parts} & _FORBIDDEN
            or (hidden and parts != ["__version__"])
            or dotted.startswith(("sys.modules", "sys.set"))
        ):
            return False
    if root != "torch" or not parts:
        return True
    for module, known in _PARTS.items():
        inside = ".".join(parts).removeprefix(f"{module}.")
        if inside != ".".join(parts) and inside.partition(".")[0] not in known:
            return False
    is_module = parts[0] in MODULES_OF_TORCH or parts[0] not in WATCHING_MODULES
    return is_module and not any(f"{dotted}.".startswith(f"{each}.") for each in _WATCHING)


def _names(project: Project) -> Iterator[_Found]:
    own = [(*each.package.split("."), each.path.stem) for each in project.sources]
    modules = _HANDED_ON | {".".join(filter(None, each)) for each in own} | {".".join(each[:-1]) for each in own} - {""}
    for source, node in project.nodes(ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        dotted = source.names.dotted(node)
        above = source.parents[node]
        if name in ("__enter__", "__exit__") and isinstance(node, ast.Attribute):
            yield source, node, f"{name} is called"
        is_text = name == "__class__" and isinstance(above, ast.Attribute) and above.attr == "__name__"
        if (name in _FORBIDDEN and not is_text) or (name == "compile" and isinstance(node, ast.Name)):
            yield source, node, f"{name} may see or change what torch does"
        elif dotted in modules and not isinstance(above, ast.Attribute) and not _is_looked_up(above):
            yield source, node, f"{dotted} is handed on"
        elif dotted and not _is_quiet(dotted):
            yield source, node, f"{dotted} may see or change what torch does"
    for source, node in project.nodes(ast.Constant):
        if isinstance(node.value, str) and node.value in _FORBIDDEN - {"__main__", "dir"}:
            yield source, node, f"{node.value} may see or change what torch does"


def _look_ups(project: Project) -> Iterator[_Found]:
    """Yield calls that reach or make something by a name that the text does not show."""
    for source, call in project.nodes(ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name == "vars" and (len(call.args) != 1 or not _is_only_read(project, source, call)):
            yield source, call, "vars() may be changed"
        if name == "type" and (len(call.args) != 1 or not _is_only_compared(source, call)):
            yield source, call, "type() makes or hands on a class"
        if name == "getattr" and not _is_plain_look_up(source, call):
            yield source, call, "getattr() finds what its text does not name"


def _is_looked_up(above: ast.AST) -> bool:
    return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "getattr"


def _is_only_compared(source: SourceFile, call: ast.Call) -> bool:
    above = source.parents[call]
    if isinstance(above, ast.Attribute):
        return above.attr in ("__name__", "__qualname__")
    return isinstance(above, ast.Compare | ast.FormattedValue) or (isinstance(above, ast.Call) and above.func is call)


def _is_plain_look_up(source: SourceFile, call: ast.Call) -> bool:
    if len(call.args) < 2 or any(isinstance(each, ast.Starred) for each in call.args):
        return False
    dotted = source.names.dotted(call.args[0])
    return isinstance(call.args[1], ast.Constant) or (dotted.startswith(("torch.optim", "torchvision.", "timm.")))


def _is_only_read(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether `vars(args)` is printed or written to a file, and nothing else."""
    above = source.parents[call]
    if isinstance(above, ast.keyword | ast.FormattedValue):
        above = source.parents[above]
    if isinstance(above, ast.JoinedStr):
        return True
    if not isinstance(above, ast.Call) or above is call:
        return False
    name = above.func.attr if isinstance(above.func, ast.Attribute) else getattr(above.func, "id", "")
    is_known = name in ("print", "dict", "sorted", "len", "str", "dump", "dumps", "init", "pprint")
    return is_known and name not in project.functions


def _definitions(project: Project) -> Iterator[_Found]:
    """Yield classes whose values may pass for tensors, and methods that Python itself looks up."""
    for source, node in project.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        if node.name in _FORBIDDEN:
            yield source, node, f"{node.name}() may do anything"
    for source, node in project.nodes(ast.ClassDef):
        for each in node.bases:
            base = each.value if isinstance(each, ast.Subscript) else each
            dotted = source.names.dotted(base)
            is_own = isinstance(base, ast.Name) and (base.id in project.classes or base.id not in source.names.bound)
            if dotted.rpartition(".")[2] in _TENSORS or not (dotted or is_own):
                yield source, node, f"{node.name} may pass for a tensor"
        if any(source.names.dotted(each.value) != "abc.ABCMeta" for each in node.keywords):
            yield source, node, f"{node.name} is made by another class"


def _assignments(project: Project) -> Iterator[_Found]:
    for source, node in project.nodes(ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            continue
        dotted = source.names.dotted(node)
        is_library = dotted.partition(".")[0] in _LIBRARIES and not dotted.startswith("torch.backends.")
        if is_library or (node.attr.startswith("__") and node.attr.endswith("__")):
            yield source, node, f"{ast.unparse(node)} is set"
    for source, node in project.nodes(ast.Name):
        if node.id in ("setattr", "delattr"):
            call = source.parents[node]
            if not isinstance(call, ast.Call) or call.func is not node or not _constant_name(call):
                yield source, node, f"{node.id}() may set anything"
    for source, node in project.nodes(ast.Call):
        name = getattr(node.func, "attr", "")
        is_more = len(node.args) > 1 or any(each.arg != "args" for each in node.keywords)
        if name in ("parse_args", "parse_known_args", "parse_intermixed_args") and is_more:
            yield source, node, f"{name}() sets attributes of what it is given"


def _transfers(project: Project) -> Iterator[_Found]:
    """Yield copies that go on meanwhile: what waits for the device may be what makes them safe."""
    for source, call in project.nodes(ast.Call):
        named = {each.arg for each in call.keywords}
        is_to_host = any(isinstance(each, ast.Constant) and each.value == "cpu" for each in ast.walk(call))
        name, dotted = getattr(call.func, "attr", ""), source.names.dotted(call.func)
        if "non_blocking" in named and (name == "copy_" or is_to_host):
            yield source, call, "a copy goes on while the script does"
        elif name == "pin_memory" or ("pin_memory" in named and dotted.startswith("torch.") and dotted.count(".") == 1):
            yield source, call, "pinned memory may be written to again"


def _constant_name(call: ast.Call) -> str:
    named = call.args[1] if len(call.args) > 1 and not isinstance(call.args[0], ast.Starred) else None
    is_text = isinstance(named, ast.Constant) and isinstance(named.value, str) and not named.value.startswith("__")
    return named.value if is_text else ""  # type: ignore[union-attr]


def _models(project: Project) -> Iterator[_Found]:
    for source, node in project.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        if node.name in _ITERATORS:
            yield source, node, f"{node.name}() may do anything"
    for source, node in project.nodes(ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        of_class = isinstance(node, ast.Attribute) or isinstance(source.scope(node), ast.ClassDef)
        if name in _ITERATORS and of_class and not isinstance(node.ctx, ast.Load):
            yield source, node, f"{name} may do anything"
    for source, node in project.nodes(ast.Name, ast.Attribute, ast.alias):
        name = getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "").rpartition(".")[2]
        if name in _PARAMETRIZED or (name.startswith("_") and name in _ITERATORS):
            yield source, source.statement(node), f"{name} makes or hides parameters"


# -- names that are set -----------------------------------------------------------------------------------------------


def patched_names(project: Project) -> set[str]:
    """Return the names of attributes that are set on anything but objects of the user's own classes."""
    found = set()
    for source, node in project.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) and not _is_of_own_object(project, source, node):
            found.add(node.attr)
    for _, call in project.nodes(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr"):
            found.add(_constant_name(call))
    return found


def _is_of_own_object(project: Project, source: SourceFile, node: ast.Attribute) -> bool:
    """Return whether `self.x = ...` stands in a method that is called on objects of its class alone."""
    scope = source.scope(node)
    around = source.parents.get(scope)
    if not isinstance(scope, ast.FunctionDef) or not isinstance(around, ast.ClassDef) or scope.decorator_list:
        return False
    given = [*scope.args.posonlyargs, *scope.args.args]
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    stored = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == name]
    if not given or given[0].arg != name or any(not isinstance(each.ctx, ast.Load) for each in stored):
        return False
    return all(_is_only_made(project, each) for each in _with_children(project, around.name))


def _with_children(project: Project, name: str) -> set[str]:
    """Return the names of a class and of those made from it."""
    found, size = {name}, 0
    while size != len(found):
        size = len(found)
        for _, node in project.nodes(ast.ClassDef):
            bases = {each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in node.bases}
            found |= {node.name} if bases & found else set()
    return found


def _is_only_made(project: Project, name: str) -> bool:
    """Return whether a class is nowhere named but where objects of it are made, or classes, or it is asked for."""
    for source, node in project.nodes(ast.Name, ast.Attribute):
        if (node.id if isinstance(node, ast.Name) else node.attr) != name:
            continue
        above = source.parents[node]
        if isinstance(above, ast.Call) and (above.func is node or ast.unparse(above.func) == "isinstance"):
            continue
        if isinstance(above, ast.ClassDef) and node in above.bases:
            continue
        if isinstance(above, ast.arg) or (isinstance(above, ast.AnnAssign) and above.annotation is node):
            continue
        if not (isinstance(above, ast.Call) and ast.unparse(above.func) == "super"):
            return False
    return True
