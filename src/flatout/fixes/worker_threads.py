"""Let every loader worker compute with one thread.

## What it does

When a worker starts, after the script's own `worker_init_fn`, torch, OpenMP, BLAS libraries, OpenCV, NumExpr and Arrow
are set to one thread there. The training process keeps its threads.

## Why it helps

The threads of one parallel region wait for the slowest, so one busy core stops all of them. Loading JPEG images next to
one busy core fell from 484 to 158 images/s with two threads and stayed at 474 with one (2 cores). `texture_filters` of
`benchmarks/planted`, with 6 workers of 8 threads each, gained 1.25x in the fix's trial (1.00 to 1.56, n=6 pairs,
undecided; 2 cores of an Intel Xeon under KVM, torch 2.13, beside other programs).

## How equal

ROUNDING: one thread sums a large array in another order than several. Decoding, resizing and everything done element
by element stay as they are.

## When it is wrong

A data set that sets a number of threads in `__getitem__` has the last word. Libraries that fix their threads when they
are loaded (Polars) are not reached. With few workers on many cores, several threads each may be better. Where other
programs fill all cores, fewer threads also get a smaller part of them: `texture_filters` trained 0.63x as fast under
the fix while the load of these 2 cores was 14 (n=2 pairs of runs).
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.edit import LoaderArgument
from flatout.fixes.core.fitness import training_loaders
from flatout.fixes.core.fix import Fix, Unfit
from flatout.schema.phase import Phase
from flatout.schema.run import Run, WorkerFacts
from flatout.schema.trial import Equivalence

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["FIX", "OneThreadWorkers", "choices", "patch", "use_one_thread"]

_SEVERAL = 1.3  # mean busy cores of one worker above which it works with more than one thread: as IN011
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
_LIBRARIES = ("gomp", "iomp", "libomp", "openblas", "mkl_rt", "blis")
_SETTERS = (
    "omp_set_num_threads",
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
    "MKL_Set_Num_Threads",
    "bli_thread_set_num_threads",
)


def choices(run: Run) -> tuple[Mapping[str, object], ...]:
    """Offer it where workers of a training loader run several threads, all of them more than there are cores."""
    loaders = [loader for loader in training_loaders(run) if loader.num_workers > 0]
    busy = [worker for worker in run.workers if worker.fetches > 0]
    if not loaders or not any(_threads(worker) > _SEVERAL for worker in busy):
        return Unfit("the workers compute with one thread each" if loaders else "no training loader has workers")
    workers = max(loader.num_workers for loader in loaders)
    threads = sum(sorted(map(_threads, busy), reverse=True)[:workers])
    cores = run.environment.num_cpus
    return ({},) if threads > cores else Unfit(f"the workers' {threads:.0f} threads fit the {cores} cores")


def _threads(worker: WorkerFacts) -> float:
    busy = worker.cpu_s / worker.busy_s if worker.busy_s > 0 else 0.0
    return max(float(worker.torch_threads), busy)


class OneThreadWorkers:
    """The `worker_init_fn` of a worker with one thread: the script's own comes first."""

    def __init__(self, init: Callable[[int], Any] | None) -> None:
        """Take the script's own function."""
        self.init = init

    def __call__(self, worker_id: int) -> None:
        """Begin in a worker."""
        if self.init is not None:
            self.init(worker_id)
        use_one_thread()


def use_one_thread(worker_id: int = 0) -> None:
    """Tell every library of this process that computes with threads to use one; a `worker_init_fn`, too."""
    import contextlib

    for name in _VARIABLES:  # for what is loaded from now on
        os.environ[name] = "1"
    for package, setter in (("torch", "set_num_threads"), ("numexpr", "set_num_threads"), ("pyarrow", "set_cpu_count")):
        with contextlib.suppress(Exception):
            getattr(sys.modules[package], setter)(1)
    with contextlib.suppress(Exception):
        sys.modules["cv2"].setNumThreads(0)  # in this thread, without a pool; a pool does not survive a fork
    _tell_native_libraries()


def _tell_native_libraries() -> None:
    import contextlib
    import ctypes

    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if ".so" in line}
        for path in paths:
            if any(name in os.path.basename(path) for name in _LIBRARIES):
                with contextlib.suppress(OSError):
                    library = ctypes.CDLL(path)  # loaded already: this is the same one
                    for setter in _SETTERS:
                        with contextlib.suppress(AttributeError):
                            getattr(library, setter)(1)


def patch(site: "Site") -> None:
    """Let the workers of every loader begin with one thread."""

    def make(original: Any) -> Any:
        def init(iterator: Any, loader: Any) -> None:
            before = loader.worker_init_fn
            if not isinstance(before, OneThreadWorkers):
                loader.worker_init_fn = OneThreadWorkers(before)
                site.hit("worker_init_fn")
            else:
                site.stand_back(f"workers of {type(loader.dataset).__name__} compute with one thread already")
            try:
                original(iterator, loader)
            finally:
                loader.worker_init_fn = before

        return init

    site.wrap("torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__", make)


FIX = Fix(
    name="worker-threads",
    equivalence=Equivalence.ROUNDING,
    phases=(Phase.INPUT,),
    patch=patch,
    choices=choices,
    addresses=("IN011",),
    edit=(LoaderArgument(name="worker_init_fn", code="flatout.use_one_thread", of_workers=True, needs=("flatout",)),),
)
