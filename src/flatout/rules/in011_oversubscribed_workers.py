"""The workers run more threads than there are cores.

## What it measures

For each worker, the number of threads that torch may use or the mean number of cores it kept busy while fetching,
whichever is larger, summed over the workers. It fires when a worker may use more than one thread of torch or keeps
more than 1.3 cores busy, the sum exceeds the cores this process may use, and both the wait for input and what one
thread in each worker could save of it are at least 10% of the step. Workers that fetch for less than a tenth of their
life do not count. It stays quiet where IN010 finds that workers cost more than they gain.

## Why it matters

Threads of one parallel region wait for the slowest, so one occupied core stops all of them. Loading JPEG images next
to one busy core fell from 484 to 158 images/s with 2 threads and stayed at 474 with one (2 cores).

## What to do

Use one thread in each worker: `torch.set_num_threads(1)` and `cv2.setNumThreads(0)` in `worker_init_fn`, and
`OMP_NUM_THREADS=1` for libraries that read it. Then use as many workers as there are free cores.

## When it is wrong

Libraries may keep idle threads; apart from torch's setting, only threads that were running are counted. The bound is
the smaller of two: the step no longer waits, or all cores share the work of the step and of its single-threaded
batches. For the latter the deep run (the second, instrumented run) builds batches alternately with one thread in each
worker and with the script's number, at least three of each. Where one thread is not faster, nothing is reported. Only
torch's threads are tested, and only in batches of at most 0.15 s.
"""

from dataclasses import replace
from statistics import fmean, median

from flatout.rules.core.bounds import input_gain, speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.machine_facts import while_steps_ran
from flatout.rules.facts.worker_facts import workers_harm
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, OneThread, Run, Utilization, WorkerFacts

MIN_SHARE = 0.10
MIN_BUSY = 0.1  # a worker that fetches for less of its life does not compete for cores
LEAST_S = 1e-3  # of fetching; below this, the CPU clock is too coarse to count busy cores
LEAST_TRIED = 3  # batches of each kind in one worker
SEVERAL = 1.3  # mean busy cores of one worker above which it works with more than one thread


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN011: workers with several threads each exceed the cores."""
    loader = training_loader(run)
    share = breakdown.share(Phase.INPUT)
    workers = _at_one_time(run, loader)
    if loader is None or not workers or share < MIN_SHARE or workers_harm(run, breakdown) is not None:
        return None
    threads = sum(max(float(worker.torch_threads), _busy_cores(worker)) for worker in workers)
    several = any(worker.torch_threads > 1 or _busy_cores(worker) > SEVERAL for worker in workers)
    if not several or threads <= run.environment.num_cpus:
        return None
    at_most = _with_one_thread(run, breakdown, workers, input_gain(breakdown, loader, 1.0, headroom, run))
    share = min(share, 1 - 1 / at_most)
    if share < MIN_SHARE:
        return None
    return Finding(
        code="IN011",
        name="oversubscribed-workers",
        phase=Phase.INPUT,
        share=share,
        max_speedup=at_most,
        bound_by="with one thread each, workers leave cores to the training",
        location=loader.created_at,
        message=f"{of_step(breakdown, breakdown.ms(Phase.INPUT))} is spent waiting for {len(workers)} workers that run "
        f"{threads:.0f} threads (cores here: {run.environment.num_cpus}). Give each worker one thread: "
        f"{_how(workers)}.",
        evidence=(
            Evidence("threads", threads, ""),
            Evidence("cores", run.environment.num_cpus, ""),
            Evidence("cores busy in one worker", max(map(_busy_cores, workers)), ""),
            Evidence("threads of one process", max(worker.os_threads for worker in workers), ""),
        ),
        fixes=("worker-threads", "compiled-input"),
    )


def _how(workers: tuple[WorkerFacts, ...]) -> str:
    if any(worker.torch_threads > 1 for worker in workers):
        return "torch.set_num_threads(1) in worker_init_fn"
    return "cv2.setNumThreads(0) in worker_init_fn, OMP_NUM_THREADS=1 for other libraries (torch already uses one)"


def _at_one_time(run: Run, loader: LoaderFacts | None) -> tuple[WorkerFacts, ...]:
    """Return as many busy workers as ran at the same time; with restarts there are more over the run."""
    wanted = loader.num_workers if loader else 0
    fetching = [w for w in run.workers if w.fetches > 0 and w.busy_s >= max(LEAST_S, MIN_BUSY * w.alive_s)]
    return tuple(sorted(fetching, key=lambda worker: worker.fetches, reverse=True)[:wanted])


def _with_one_thread(run: Run, breakdown: Breakdown, workers: tuple[WorkerFacts, ...], waits: float) -> float:
    """Return the most that one thread in each worker can give: no wait, or all cores at work on what is left.

    The CPU time of a single-threaded batch was measured in the deep run; where not, only the wait bounds the gain.
    """
    tried = [worker.one_thread for worker in workers if worker.one_thread.n >= LEAST_TRIED]
    samples = while_steps_ran(run)
    if not tried or not samples:
        return speedup_without(waits)
    if median(each.single_s for each in tried) >= median(each.several_s for each in tried):
        return 1.0
    step_s = breakdown.mean_ms / 1000
    busy_s = step_s * fmean(each.main_cpu for each in samples)
    own_s = min(busy_s, step_s - breakdown.ms(Phase.INPUT) / 1000)  # threads may spin while they wait for cores
    work_s = own_s + fmean(step.num_batches for step in run.steps) * median(each.cpu_s for each in tried)
    return min(speedup_without(waits), step_s * run.environment.num_cpus / work_s) if work_s > 0 else 1.0


def _busy_cores(worker: WorkerFacts) -> float:
    return worker.cpu_s / worker.busy_s


_LOADER = LoaderFacts(is_training=True, num_workers=4, fetches=80, created_at=Frame("train.py", 9, "main"))
_FOUR = Environment(num_cpus=4)


def _workers(torch_threads: int, busy_cores: float) -> tuple[WorkerFacts, ...]:
    return tuple(
        WorkerFacts(worker_id=i, torch_threads=torch_threads, fetches=20, busy_s=4.0, cpu_s=4.0 * busy_cores)
        for i in range(4)
    )


_HARMFUL = replace(_LOADER, sample_s=0.008, collate_s=0.002)  # IN010: the wait is five times the work
_UNTOLD = tuple(replace(worker, busy_s=5e-324, alive_s=0.0) for worker in _workers(2, 1.8))
_IDLE = tuple(replace(worker, alive_s=60.0) for worker in _workers(1, 1.8))
_HALF = Utilization(at_s=0.5, main_cpu=0.5, worker_cpu=3.0)


def _tried(cpu_s: float) -> tuple[WorkerFacts, ...]:
    one_thread = OneThread(n=9, several_s=0.1, single_s=0.03, cpu_s=cpu_s)
    return tuple(replace(worker, one_thread=one_thread) for worker in _workers(4, 0.9))


RULE = Rule(
    code="IN011",
    name="oversubscribed-workers",
    check=check,
    fires_on=(
        example(step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_workers(4, 0.9)),
        example(step_ms=100, input=20, loaders=(_LOADER,), environment=_FOUR, workers=_workers(1, 1.8)),
        example(
            step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_tried(0.2), utilization=(_HALF,)
        ),
    ),
    quiet_on=(
        example(step_ms=100, input=9.9, loaders=(_LOADER,), environment=_FOUR, workers=_workers(4, 0.9)),
        example(step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_workers(1, 0.98)),
        example(step_ms=100, input=50, loaders=(_HARMFUL,), environment=_FOUR, workers=_workers(4, 0.9)),
        example(step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_IDLE),
        example(
            step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_tried(0.4), utilization=(_HALF,)
        ),
        example(step_ms=100, input=50, loaders=(_LOADER,), environment=_FOUR, workers=_UNTOLD),
        example(step_ms=100, input=50, loaders=(replace(_LOADER, num_workers=0),), environment=_FOUR),
        example(
            step_ms=100, input=50, loaders=(_LOADER,), environment=Environment(num_cpus=16), workers=_workers(4, 1)
        ),
    ),
)
