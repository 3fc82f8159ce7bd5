"""The input compiler: a script's own DataLoader, with the same samples in the same order, made in batches and once.

`compile_loader(loader)` gives a loader that is walked as the script's own is. Torch is imported with the first name
that needs it, so that other packages may look at this one without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flatout.pipeline.serve.compiled_loader import CompiledLoader, compile_loader

__all__ = ["CompiledLoader", "compile_loader"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flatout.pipeline.serve import compiled_loader

    return getattr(compiled_loader, name)
