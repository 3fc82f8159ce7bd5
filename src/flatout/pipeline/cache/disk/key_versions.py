"""Whose a module is, and in which version: the user's own code is told by what it does, installed packages by this."""

import functools
import hashlib
import importlib.machinery
import importlib.metadata
import os
import platform
import sys
import sysconfig
import time
from pathlib import Path

import torch

__all__ = ["environment", "owner_of"]

_MAKING = ("native", "pipeline", "torch_loader", "watch")  # the folders of ours that make samples
_INSTALLED = {"site-packages", "dist-packages"}
_COMPILED = (".so", ".pyd")
_SCRIPT = {"__main__", "__mp_main__"}  # whatever started it
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


def owner_of(module: str) -> str:
    """Return the package, version and state of files that `module` belongs to; empty where it is the user's own."""
    top = module.partition(".")[0]
    if top in _SCRIPT:
        return ""
    if top == "flatout":
        return _flatout()
    file = _file(module) or _file(top)
    if not _INSTALLED & set(Path(file).parts):
        if top in sys.stdlib_module_names and (not file or file.startswith(_STANDARD)):  # a script may be `token.py`
            return "python"
        if not file.endswith(_COMPILED):
            return ""
    return f"{top} {_version(top)} {_record(top)} {_stamp(file)}"


def _file(module: str) -> str:
    loaded = sys.modules.get(module)
    if loaded is not None:
        return str(getattr(loaded, "__file__", None) or "")
    if "." in module or not module or module in sys.builtin_module_names:
        return ""  # to find a module inside a package, the package would have to be imported
    spec = importlib.machinery.PathFinder.find_spec(module)
    return str(spec.origin or "") if spec is not None else ""


def _version(top: str, project: str = "") -> str:
    version = getattr(sys.modules.get(top), "__version__", None)
    if version is not None:
        return str(version)
    try:
        return importlib.metadata.version(project or top)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


@functools.cache
def _record(top: str) -> str:
    """Return a digest of the list of a package's files: one that is installed again may keep its version."""
    try:
        record = importlib.metadata.distribution(top).read_text("RECORD")
    except (importlib.metadata.PackageNotFoundError, ValueError, OSError):
        record = None
    return hashlib.sha256((record or "").encode()).hexdigest()[:16]


def _stamp(file: str) -> str:
    try:
        found = os.stat(file)
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


@functools.cache
def _flatout() -> str:
    """Return the version of flatout and of these files: while it is worked on, its number stays and they change."""
    told = hashlib.sha256()
    package = Path(__file__).parents[3]
    for path in sorted(each for folder in _MAKING for each in (package / folder).rglob("*.py")):
        told.update(path.read_bytes())
    return f"flatout {_version('flatout')} {told.hexdigest()}"


def _of_numbers() -> list[str]:
    """Return how decimal and NumPy compute, where they are there."""
    decimal, numpy = sys.modules.get("decimal"), sys.modules.get("numpy")
    context = decimal.getcontext() if decimal is not None else None
    return [
        f"{context.prec} {context.rounding}" if context is not None else "",
        f"{sorted(numpy.geterr().items())}" if numpy is not None else "",
    ]


def environment() -> list[str]:
    """Return what every sample depends on: versions, the processor's instructions, settings of the process."""
    known = {"torch": "", "torchvision": "", "PIL": "pillow", "numpy": ""}
    versions = [f"{top} {_version(top, project)}" for top, project in known.items()]
    settings = [
        f"{torch.get_default_dtype()}",
        f"{torch.backends.cpu.get_cpu_capability()} {platform.machine()} {sys.byteorder}",
        f"{getattr(sys.modules.get('torchvision'), '_image_backend', None)}",
        f"{getattr(sys.modules.get('PIL.ImageFile'), 'LOAD_TRUNCATED_IMAGES', False)}",
        f"{torch.are_deterministic_algorithms_enabled()} {torch.get_float32_matmul_precision()} {time.tzname}",
        *_of_numbers(),
    ]
    return [sys.version, _flatout(), *versions, *settings]
