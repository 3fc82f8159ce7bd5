"""flatout makes PyTorch training run flat out: it measures, names the cause, and proves the cure."""

from typing import Any as _Any

__all__ = [
    "__version__",
    "collect_rarely",
    "compile_loader",
    "compiled",
    "explain",
    "keep_freed_memory",
    "lightning_callback",
    "measure_loader",
    "objects",
    "one_pass_optimizers",
    "recording",
    "table",
    "trainer_callback",
    "use_one_thread",
]

__version__ = "0.1.0"


_PLACES = {
    "collect_rarely": "flatout.fixes.gc_control",
    "compile_loader": "flatout.pipeline.serve.compiled_loader",
    "compiled": "flatout.numeric.decorator",
    "explain": "flatout.pipeline.serve.explanation",
    "keep_freed_memory": "flatout.fixes.kept_memory",
    "measure_loader": "flatout.probe.benchmark.loader_benchmark",
    "objects": "flatout.pipeline.read.objects.objects",
    "one_pass_optimizers": "flatout.fixes.one_pass_optimizer",
    "recording": "flatout.inside.recording",
    "table": "flatout.pipeline.read.tables.table",
    "lightning_callback": "flatout.inside.callbacks",
    "trainer_callback": "flatout.inside.callbacks",
    "use_one_thread": "flatout.fixes.worker_threads",
}


def __getattr__(name: str) -> _Any:
    """Import what needs torch when it is asked for: the command line does without."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
