"""What flatout takes of torch's private names, which any version may drop: all stand in one list, and all are there."""

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.architecture.source import PACKAGE, modules, nodes, none_of
from tests.torchvision_stub import torchvision

LIST = Path(__file__).with_name("torch_private_names.toml")
READ = tomllib.loads(LIST.read_text(encoding="utf-8"))
NAMES: dict[str, list[str]] = READ["torch"]
FILES = NAMES | READ["earlier"]
ELSEWHERE = {name for names in READ["elsewhere"].values() for name in names}
PATH = re.compile(r"torch(vision)?(\.\w+)+(:[\w.]*)?")  # a string that names something of torch's
TORCHS = re.compile(r"torch(vision)?\b")
PRIVATE = re.compile(r"(^|\.)_(?!_)\w")


@cache
def instances() -> dict[str, tuple[Any, ...]]:
    """Return real objects by the first word of the names that are looked for on all of them."""
    transforms = importlib.import_module(f"{torchvision.__name__}.transforms.v2")
    data, model = torch.zeros(4), torch.nn.Linear(2, 2)
    alone, working = (iter(torch.utils.data.DataLoader(data, 2, num_workers=number)) for number in (0, 1))
    assert len(list(alone)) == len(list(working)) == 2  # with which the worker has gone
    return {
        "loader": (torch.utils.data.DataLoader(data, 2),),
        "iterator": (alone, working),
        "iterator_without_workers": (alone,),
        "iterator_with_workers": (working,),
        "tensor": (data,),
        "module": (model,),
        "recurrent": (torch.nn.LSTM(2, 2), torch.nn.GRU(2, 2)),
        "node": (model(data[:2]).grad_fn,),
        "compiled_module": (torch.compile(model),),
        "operator": (torch.ops.aten.add.Tensor,),
        "backward_class": (torch.autograd.function.Function._backward_cls,),
        "crop": (transforms.RandomResizedCrop(2),),
        "pad": (transforms.Pad(2),),
    }


def test_the_list_names_what_the_files_take_and_nothing_else():
    unlisted = [
        f"src/flatout/{file}: takes {name.lstrip('.')}: add it to {LIST.name}, with this file"
        for file, names in taken().items()
        for name in sorted(names)
        if not any(file in FILES[listed] for listed in FILES if _is(name, listed))
        if name.lstrip(".") not in ELSEWHERE
    ]
    untaken = [
        f"{LIST.name}: {file} no longer takes {listed}"
        for listed, files in FILES.items()
        for file in files
        if not any(_is(name, listed) for name in taken().get(file, ()))
    ]
    none_of(unlisted + untaken)


@pytest.mark.slow
@pytest.mark.parametrize("listed", NAMES)
def test_torch_has_the_name(listed: str):
    holders, names = _holders(listed)
    for found in holders:
        for name in names:
            there = hasattr(found, name) or (callable(found) and name in inspect.signature(found).parameters)
            assert there, f"torch {torch.__version__} has no {listed}, which {', '.join(NAMES[listed])} takes"
            found = getattr(found, name, None)


def _holders(listed: str) -> tuple[tuple[Any, ...], list[str]]:
    """Return the instances or the innermost module that a listed name begins with, and what follows."""
    names = listed.split(".")
    if names[0] in instances():
        return instances()[names[0]], names[1:]
    with suppress(ImportError):
        return (importlib.import_module(listed),), []
    holders, rest = _holders(listed.rpartition(".")[0])
    return holders, [*rest, names[-1]]


def _is(name: str, listed: str) -> bool:
    """Return whether a file that takes `name` takes what is listed: of attributes only the last part is known."""
    return listed.endswith(name) if name.startswith(".") else listed == name


@cache
def taken() -> dict[str, set[str]]:
    """Return by file the private names that it takes: `torch.a._b`, and `._b` where an instance has it."""
    of = {module.path.relative_to(PACKAGE).as_posix(): nodes(module) for module in modules().values()}
    own = {file: set(_defined(of[file])) for file in of}
    house = set().union(*own.values())
    return {file: set(filter(PRIVATE.search, _taken(of[file], own[file], house))) for file in of}


def _taken(nodes: Sequence[ast.AST], own: set[str], house: set[str]) -> Iterator[str]:
    """Yield names of torch's, and attributes: none that the file defines; of `self`, none that the house does."""
    bound = _bound(nodes)
    yield from bound.values()
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if dotted := _dotted(node, bound):
                yield "" if id(node) in inner else dotted
            elif node.attr not in (house if _is_self(node.value) else own):
                yield f".{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if PATH.fullmatch(node.value):
                yield node.value.replace(":", ".").rstrip(".")
            elif node.value.isidentifier() and node.value not in own:
                yield f".{node.value}"


def _bound(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Return what the names stand for that imports of torch bind; `torch` does, however a file comes by it."""
    found = {"torch": "torch"}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname and TORCHS.match(alias.name)}
        elif isinstance(node, ast.ImportFrom) and TORCHS.match(node.module or ""):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _dotted(node: ast.expr, bound: dict[str, str]) -> str:
    """Return `torch.a.b` for `t.b` where `t` is `torch.a`, an empty string for what is not torch's."""
    if isinstance(node, ast.Attribute):
        of = _dotted(node.value, bound)
        return of and f"{of}.{node.attr}"
    return bound.get(node.id, "") if isinstance(node, ast.Name) else ""


def _defined(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
