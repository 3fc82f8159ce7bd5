"""What a recording knows of the script's parts: loaders, models, optimizers, workers, copies, waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "HELD_FIXED",
    "HELD_INPUT",
    "HELD_PINNED",
    "HELD_RAW",
    "HELD_SAMPLES",
    "HELD_TRANSFER",
    "LOADER_ALONE",
    "Ceiling",
    "CollectorFacts",
    "CompiledFunction",
    "Frame",
    "GraphBreak",
    "LoaderFacts",
    "ModelFacts",
    "OneThread",
    "OptimizerFacts",
    "PageFaults",
    "RemoteReads",
    "Retained",
    "SamplePrefix",
    "Stage",
    "SyncPoint",
    "Transfer",
    "WorkerFacts",
]


HELD_RAW = "raw samples held"
HELD_FIXED = "fixed transforms held"
HELD_SAMPLES = "samples held"
HELD_INPUT = "one batch held"
HELD_PINNED = "one batch held, pinned"
HELD_TRANSFER = "one batch on the device"
LOADER_ALONE = "the loader alone"
"""Names of the ceilings, as reports print them: the later something is held, the less is left to do."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the user's own code."""

    file: str  # its whole path
    line: int  # counted from 1
    function: str  # with its class, as Python names it


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePrefix:
    """What calling `dataset[i]` again, with the same and with another random state, showed."""

    checked: int = 0  # indices tried
    deterministic: bool = False  # the whole sample is the same whatever the random state
    prefix_share: float = 0.0  # share of the sample's time spent before the first random draw (1.0 if none)
    seconds: float = 0.0  # median time of one sample
    cpu_seconds: float = 0.0  # median CPU time of one sample in the calling thread
    shares_memory: bool = False  # the sample is a view of a larger array kept in memory
    sample_bytes: int = 0
    reason: str = ""  # why nothing could be tried
    first_random: Frame | None = None  # the user line of the first random draw
    drawn_from: str = ""  # "numpy's global generator", where samples are drawn at random and that is known
    has_transform: bool = True  # the data set holds what may be a transform, before which samples may be the same
    numbers: int = 0  # Python numbers that a sample consists of, inside of lists and dictionaries, too
    made_at: Frame | None = None  # where the user's `__getitem__` begins
    alike: str = ""  # a function of the script's that is called for a sample and gives the same each time
    alike_share: float = 0.0  # share of the sample's time in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One operation of a data set's list of transforms, as a look at a few samples found it."""

    name: str  # of its class
    library: str = ""  # "torchvision", "albumentations", or "" for anybody else's
    seconds: float = 0.0  # a sample
    pixels_before: int = 0  # height times width of what it is given; 0 when that is no image
    pixels_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReads:
    """What a batch reads over the network, of files that fsspec opens: means over the batches of a deep run."""

    requests: float = 0.0
    fetched_bytes: float = 0.0  # asked for
    used_bytes: float = 0.0  # handed to the script
    seconds: float = 0.0  # in reads that asked for something, inside the fetching of samples

    @classmethod
    def of(cls, totals: Mapping[str, float]) -> "RemoteReads | None":
        """Return the means of `totals` over batches; None where nothing was asked for."""
        count = max(1, totals["fetches"])
        if not totals.get("remote_requests"):
            return None
        return cls(
            requests=totals["remote_requests"] / count,
            fetched_bytes=totals["remote_fetched"] / count,
            used_bytes=totals["remote_used"] / count,
            seconds=totals["remote_ns"] / count / 1e9,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """One DataLoader as the script built it, with what the recording saw of it."""

    name: str = ""  # class of the dataset
    is_training: bool = False
    num_workers: int = 0
    batch_size: int = 0  # 0 when a batch sampler or no automatic batching decides
    pin_memory: bool = False
    persistent_workers: bool = False
    prefetch_factor: int = 0
    num_samples: int = 0  # len(dataset), 0 when it has none
    num_batches: int = 0  # len(loader), 0 when it has none
    iterable_style: bool = False
    has_getitems: bool = False  # a whole batch in one call, as where there is no automatic batching
    in_memory_bytes: int = 0  # arrays and tensors of the dataset with one row a sample
    default_collate: bool = True
    default_sampler: bool = True
    start_method: str = ""
    epochs_started: int = 0
    start_s: float = 0.0  # time spent in `iter(loader)`, all epochs
    created_at: Frame | None = None
    iterated_at: Frame | None = None
    batch_dtypes: tuple[str, ...] = ()
    batch_bytes: int = 0
    sample_s: float = 0.0  # deep run: seconds a batch spent fetching samples (inside the worker if there are any)
    sample_cpu_s: float = 0.0  # the same, CPU time of the fetching thread
    sample_queued_s: float = 0.0  # of the first, that thread was ready and had no core; 0 where that is not counted
    collate_s: float = 0.0  # seconds a batch in collate_fn
    sampler_s: float = 0.0  # seconds a batch in the sampler
    wait_s: float = 0.0  # seconds a batch the training process waited for `next`
    fetches: int = 0  # batches these means are over
    prefix: SamplePrefix | None = None
    stages: tuple[Stage, ...] = ()
    remote: RemoteReads | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One outermost module."""

    name: str = ""
    num_parameters: int = 0  # parameter tensors
    num_elements: int = 0
    dtypes: tuple[str, ...] = ()  # of the parameters, that of most bytes first
    input_dtypes: tuple[str, ...] = ()
    compiled: bool = False
    replicas: int = 1  # devices that DataParallel copies it to in each call
    module_types: Mapping[str, int] = field(default_factory=dict)  # class name -> count, leaf modules
    anomaly_share: float = 0.0  # measured: share of forward + backward that anomaly detection costs
    anomaly_steps: int = 0  # steps in each arm of that measurement; 0 when anomaly detection is off
    anomaly_at: Frame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer."""

    name: str = ""
    from_torch: bool = True
    num_tensors: int = 0
    implementation: str = ""  # "fused", "foreach", "loop", or "" when unknown
    fused_available: bool = False
    created_at: Frame | None = None
    turns: int = 0  # how often it made a step after another optimizer had, the first one included; 0 when unknown
    has_complex: bool = False  # complex parameters, of which torch updates lists, but makes no fused step


@dataclass(frozen=True, slots=True, kw_only=True)
class OneThread:
    """Batches of a worker made with the script's number of threads and with one, by all workers in turn: medians."""

    n: int = 0  # batches of the rarer kind; 0: not tried
    several_s: float = 0.0  # a batch with the script's number
    single_s: float = 0.0  # with one
    cpu_s: float = 0.0  # on a core, of the thread that made it


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """One DataLoader worker process over its life."""

    pid: int = 0
    worker_id: int = 0
    torch_threads: int = 1
    os_threads: int = 1
    fetches: int = 0
    busy_s: float = 0.0  # inside the fetcher
    cpu_s: float = 0.0  # CPU of the whole process while inside the fetcher
    alive_s: float = 0.0
    one_thread: OneThread = field(default_factory=OneThread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The speed of the script with a part of its work removed, as measured (never modelled)."""

    ceiling: str  # which part was removed
    median_ms: float  # of a step without it
    speedup: float  # of a step without it, against the script as it is
    low: float = 0.0  # of its 95 % interval, from the blocks alone
    high: float = 0.0
    num_pairs: int = 0  # of blocks of steps with and without that part


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPoint:
    """A place where the host waited for the device."""

    operation: str
    place: Frame | None
    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Copies between host and device from one place."""

    direction: str  # "to_device" or "to_host"
    place: Frame | None
    count: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    dtype: str = ""
    pinned: bool = False
    blocking: bool = True
    repeats: int = 0  # of the same tensor, unchanged since it was copied from this place the last time
    looked: int = 0  # copies whose values were looked at: large ones of floating-point numbers
    as_bytes: int = 0  # of these, those whose values a byte each and one scale for each channel would hold exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorFacts:
    """What Python's garbage collector took while the deep run's steps ran."""

    collections: int = 0
    full: int = 0  # of the oldest generation
    seconds: float = 0.0
    longest_s: float = 0.0
    place: Frame | None = None  # the user line that asks for most, where nearly all of the time is asked for
    called: int = 0  # collections that are asked for then, by lines of the user's and by libraries
    between_s: float = 0.0  # between epochs
    between_asked_s: float = 0.0  # of that, where somebody asks for it
    between_at: Frame | None = None  # the user line that asks for most of it


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFaults:
    """Memory that the deep run's process took anew from the kernel while its steps ran, page by page."""

    steps: int = 0
    faults: int = 0
    system_s: float = 0.0  # in the kernel, of all threads
    wall_s: float = 0.0  # of the steps
    fault_s: float = 0.0  # what one fault takes on this machine; 0: not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """A place where `torch.compile` ended a graph, and why."""

    reason: str
    place: Frame | None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction:
    """A function of the user's that `torch.compile` compiled, each time it did."""

    place: Frame  # where it begins
    compilations: int = 0
    again: int = 0  # of these, made again while steps ran
    seconds: float = 0.0  # in all of them
    again_s: float = 0.0  # in those made again while steps ran
    limit: int = 0  # compilations after which it is run as it is; 0 when not known
    reason: str = ""  # what had changed when it was compiled last
    changed_at: Frame | None = None  # the line that read it, where that is known
    refused: bool | None = None  # one more was asked for than the limit allows; None where torch does not tell

    @property
    def is_given_up(self) -> bool:
        """Return whether no more is compiled of it, so that it runs as written where nothing that there is fits."""
        over = 0 < self.limit <= self.compilations if self.refused is None else self.refused
        return over and self.again > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """A name that keeps the autograd graphs of past steps alive."""

    name: str
    place: Frame | None
    graphs: int = 0  # steps whose graph was still alive
    of_steps: int = 0  # steps looked at
    num_bytes: int = 0  # bytes of the tensors seen behind that name
