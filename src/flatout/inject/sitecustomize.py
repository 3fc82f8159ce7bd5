"""Python runs this file at start-up in every process of an observed script; it waits for `torch` and then attaches.

Standard library only. Another `sitecustomize` further along the path is run as it would have been without us.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_HERE)


def _run_the_next_sitecustomize() -> None:
    """Import the `sitecustomize` that ours hides."""
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None or spec.origin == os.path.abspath(__file__):
        return
    module = importlib.util.module_from_spec(spec)
    ours = sys.modules.get("sitecustomize")
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


class _Finder(importlib.abc.MetaPathFinder):
    """Lets modules import as ever and acts afterwards; finds `flatout` where this interpreter has none."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == "flatout" and not self.busy:
            return self._find_flatout()
        act = _AFTER.get(name)
        if act is None or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            act(self.order)

        vars(spec.loader)["exec_module"] = exec_module
        return spec

    def _find_flatout(self) -> Any:
        self.busy = True
        try:
            spec = importlib.util.find_spec("flatout")
        except (ImportError, ValueError):
            spec = None
        finally:
            self.busy = False
        if spec is not None:
            return spec
        return importlib.util.spec_from_file_location(
            "flatout", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
        )


def _attach(order: str) -> None:
    try:
        from flatout.child import attach
    except Exception:
        import traceback

        with open(os.path.join(os.path.dirname(order), "parts", f"failed-{os.getpid()}.txt"), "w") as file:
            traceback.print_exc(file=file)
        return
    attach(order)


def _keep_safetensors(order: str) -> None:
    """Let files written by safetensors, past Python's `open`, be set aside like all others."""
    from flatout.child import protect_safetensors

    protect_safetensors(order)


_AFTER: dict[str, Callable[[str], None]] = {"torch": _attach, "safetensors.torch": _keep_safetensors}
"""What is done once a module was imported."""


def _begin() -> None:
    order = os.environ.get("FLATOUT_ORDER")
    if not order or not os.path.exists(order):
        return
    parts = os.path.join(os.path.dirname(order), "parts")
    try:
        name = os.path.join(parts, f"python-{os.getpid()}")
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the command line stays out of it
    except OSError:
        pass
    sys.meta_path.insert(0, _Finder(order))
    if os.path.basename(order) not in ("under-recipe.json", "order-whole.json"):  # there files are the script's own
        _protect(order)
    _serve_edits(order)
    for name, act in _AFTER.items():
        if name in sys.modules:  # by another `sitecustomize`, or a `.pth` file
            act(order)


def _serve_edits(order: str) -> None:
    """Let edited text be run in place of files, where the order has any: looked for as text, since most have none."""
    try:
        with open(order, "rb") as file:
            if b'"edited": [{' not in file.read():
                return
        from flatout.child import serve_edits

        serve_edits(order)
    except Exception as error:
        os.write(2, f"flatout: edits of the source are left out: {error}\n".encode())


def _protect(order: str) -> None:
    try:
        from flatout.child import protect

        protect(order)
    except Exception as error:  # unprotected, the script must not run: its files would not be put back
        os.write(2, f"flatout: cannot keep the files of this process as they are: {error}\n".encode())
        os._exit(1)


try:
    _run_the_next_sitecustomize()
finally:
    _begin()
