"""The decision what serves a loader: a pure function of facts about its input."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CompilerFacts", "Decision", "InputFacts", "Reading", "Strategy", "choose", "suited"]


@dataclass(frozen=True)
class CompilerFacts:
    """What is known of making a loader's batches with kernels.

    Attributes:
        in_memory: the values lie in memory.
        random: some of its operations draw.
        one_by_one: samples may be read one after the other only.
        reads_quickly: reading values takes so little that workers are not worth it.
        workers_read: the loader's workers can read values.
        reading_threads: on how many threads values are read fastest; 0 where no other thread pays.
    """

    in_memory: bool
    random: bool = False
    one_by_one: bool = False
    reads_quickly: bool = False
    workers_read: bool = False
    reading_threads: int = 0


@dataclass(frozen=True)
class InputFacts:
    """What was found out about a loader, its data set and its collate function; what needed no asking is as here.

    Attributes:
        refused: why samples stand neither for themselves nor before a random transform; empty when they do.
        random: why samples are other ones each time, as far as is known by a transform; empty when they are the same.
        num_workers: of the loader.
        workers_begin: the loader has a `worker_init_fn`.
        compiler: of making batches with kernels, None where an operation has none.
        num_waiting: how many samples are asked for at a time, since making one is mostly waiting; 0 where it is not.
        one_core: the threads that ask for them stay on one core.
        collate_once: why the collate function may be called once a batch, in order, and not besides.
        rows_refused: why no rows are kept, as far as it is known by now.
        rows_fit: there is memory for the rows of all samples; known of samples that wait.
    """

    refused: str = ""
    random: str = ""
    num_workers: int = 0
    workers_begin: bool = False
    compiler: CompilerFacts | None = None
    num_waiting: int = 0
    one_core: bool = False
    collate_once: str = ""
    rows_refused: str = ""
    rows_fit: bool = True


class Strategy(StrEnum):
    """What serves a loader; the value says it in words."""

    BATCH_COMPILED = "batches are made by kernels, of values that are kept"
    KEPT_ROWS = "rows of delivered batches are kept, and gathered"
    KEPT_SAMPLES = "samples are kept, and collated by the script's own function"
    PREFETCHED = "samples are asked for ahead, and not kept"
    PASSTHROUGH = "the script's own loader"


@dataclass(frozen=True)
class Reading:
    """Who reads before a batch is due.

    Attributes:
        threads: on how many threads values are read for the kernels.
        workers: the loader's workers read them.
        in_flight: how many samples are asked for at a time.
        one_core: the threads that ask for them stay on one core.
    """

    threads: int = 0
    workers: bool = False
    in_flight: int = 0
    one_core: bool = False


@dataclass(frozen=True)
class Decision:
    """What serves a loader.

    Attributes:
        strategy: what does.
        reason: why the script's own loader does; empty elsewhere.
        reading: who reads ahead.
        otherwise: what serves where keeping samples turns out not to pay, which is found out by trying.
    """

    strategy: Strategy
    reason: str = ""
    reading: Reading = Reading()
    otherwise: "Decision | None" = None


def choose(facts: InputFacts) -> Decision:
    """Return what serves a loader of which `facts` are known."""
    if facts.refused:
        return Decision(Strategy.PASSTHROUGH, facts.refused)
    by_kernels = suited(facts)
    if by_kernels is not None:
        return Decision(Strategy.BATCH_COMPILED, reading=by_kernels)
    instead = _without_kernels(facts)
    if facts.rows_refused and not facts.num_workers:
        return Decision(Strategy.KEPT_SAMPLES, otherwise=instead)
    return instead


def suited(facts: InputFacts) -> Reading | None:
    """Return who reads for the kernels, None where there are none, or the loader's own workers do better."""
    compiler = facts.compiler
    if compiler is None:
        return None
    reads = not (compiler.in_memory or compiler.one_by_one)
    quick = reads and facts.num_workers > 0 and compiler.reads_quickly
    workers = reads and not quick and compiler.workers_read
    threads = compiler.reading_threads if reads and not workers else 0
    if not facts.num_workers:
        return Reading(threads, workers)
    pays = compiler.in_memory or threads or quick or workers
    return Reading(threads, workers) if pays and not (facts.workers_begin and compiler.random) else None


def _without_kernels(facts: InputFacts) -> Decision:
    reading = Reading(in_flight=facts.num_waiting, one_core=facts.one_core)
    passes_through = facts.num_waiting > 0 and (bool(facts.collate_once) or not facts.rows_fit)
    if facts.random or (facts.collate_once and (facts.num_workers or not facts.num_waiting)):
        return Decision(Strategy.PASSTHROUGH, facts.rows_refused)
    return Decision(Strategy.PREFETCHED if passes_through else Strategy.KEPT_ROWS, reading=reading)
