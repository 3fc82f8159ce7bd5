"""flatout makes PyTorch training run flat out: it measures, names the cause, and proves the cure."""

from typing import Any as _Any

__all__ = ["__version__", "compile_loader"]

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    """Import what needs torch when it is asked for: the command line does without."""
    if name == "compile_loader":
        from flatout.pipeline.compiled import compile_loader

        return compile_loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
