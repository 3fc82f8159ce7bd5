"""A Run: one recorded execution of a training script, and the causes that a second, deep run found.

Times are integers in nanoseconds on the child's `perf_counter_ns` clock unless a name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flatout.schema.backward import BackwardFacts, Recomputed
from flatout.schema.calls import RepeatedCall, UnchangingCall
from flatout.schema.facts import (
    Ceiling,
    CollectorFacts,
    CompiledFunction,
    Frame,
    GraphBreak,
    LoaderFacts,
    ModelFacts,
    OneThread,
    OptimizerFacts,
    PageFaults,
    RemoteReads,
    Retained,
    SamplePrefix,
    Stage,
    SyncPoint,
    Transfer,
    WorkerFacts,
)
from flatout.schema.measured import (
    Arithmetic,
    Collected,
    CompiledTrial,
    Convolutions,
    Denormals,
    DeviceKernel,
    DeviceMemory,
    DeviceWork,
    Exchange,
    Fallback,
    FrozenCalls,
    LayoutTrial,
    LineOperations,
    LoopInvariant,
    MicroBatches,
    NeedlessCopy,
    Padding,
    PrecisionTrial,
    RepeatedForward,
    RepeatedLine,
    SettingTrial,
    SlowForm,
    SlowReduction,
    Span,
    UntrainedCalls,
    UnusedGradients,
    UnusedGraphs,
    UnusedRows,
)
from flatout.schema.phase import Phase

__all__ = [
    "Arithmetic",
    "BackwardFacts",
    "Causes",
    "Ceiling",
    "Collected",
    "CollectorFacts",
    "CompiledFunction",
    "CompiledTrial",
    "Convolutions",
    "Denormals",
    "DeviceKernel",
    "DeviceMemory",
    "DeviceWork",
    "End",
    "Environment",
    "EpochEnd",
    "Exchange",
    "Fallback",
    "Frame",
    "FrozenCalls",
    "GraphBreak",
    "Header",
    "LayoutTrial",
    "LineCost",
    "LineOperations",
    "LoaderFacts",
    "LoopInvariant",
    "MicroBatches",
    "ModelFacts",
    "NeedlessCopy",
    "OneThread",
    "OptimizerFacts",
    "Outside",
    "Padding",
    "PageFaults",
    "Planned",
    "PrecisionTrial",
    "RankSummary",
    "RemoteReads",
    "RepeatedCall",
    "RepeatedForward",
    "RepeatedLine",
    "Retained",
    "Run",
    "SamplePrefix",
    "SettingTrial",
    "SlowForm",
    "SlowReduction",
    "Span",
    "Stage",
    "Step",
    "SyncPoint",
    "Transfer",
    "UnchangingCall",
    "UntrainedCalls",
    "UnusedGradients",
    "UnusedGraphs",
    "UnusedRows",
    "Utilization",
    "WorkerFacts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Which process wrote a recording, and when."""

    script: str
    argv: tuple[str, ...] = ()
    mode: str = "timed"  # "timed" or "deep"
    rank: int = 0
    world_size: int = 1
    pid: int = 0
    started_unix_s: float = 0.0
    launched_ns: int = 0  # when the process began, on the same clock as the steps
    attaching_s: float = 0.0  # of its start, what flatout itself took in it
    working_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the software the Run happened on."""

    device: str = "cpu"  # "cpu", or the accelerator's name
    device_kind: str = "cpu"  # "cpu", "cuda", "mps", ...
    num_devices: int = 0
    num_cpus: int = 1  # cores this process may use (affinity, control groups), not those of the machine
    cpu: str = ""
    memory_bytes: int = 0
    platform: str = ""
    python: str = ""
    torch: str = ""
    torch_threads: int = 1
    start_method: str = ""  # multiprocessing start method
    variables: Mapping[str, str] = field(default_factory=dict)  # OMP_NUM_THREADS and the like


class Step(NamedTuple):
    """One training iteration; `phases_ns` follows `STEP_PHASES` and sums to `wall_ns` exactly.

    A named tuple, for it is made once a step inside the training: 0.4 us where a frozen dataclass takes 3.
    """

    start_ns: int
    wall_ns: int
    phases_ns: tuple[int, ...]
    num_batches: int = 1  # batches asked for in this step: more than one when gradients are accumulated
    epoch: int = 0  # how many passes over the training loader were begun before this step, less one
    first_of_epoch: bool = False
    forward_without_grad: bool = False  # a forward pass without gradients ran inside this step
    host_parts_ns: tuple[int, int, int] = (0, 0, 0)  # host time before forward, forward to backward, after backward
    device_ns: tuple[int, ...] = ()  # device time of forward, backward, optimizer by CUDA events; empty without CUDA


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A stretch of the main thread between steps."""

    phase: Phase
    start_ns: int
    wall_ns: int
    with_grad: bool = False  # validation only: forward passes recorded gradients
    num_batches: int = 0  # batches taken from a loader in this stretch
    grad_passes: int = 0  # validation only: passes of outermost modules that recorded gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCost:
    """Time that the deep run's sampler saw spent below one chain of user lines."""

    process: str  # "main" or "worker"
    phase: Phase
    part: str = ""  # of host: "lead" (before forward), "loss" (forward to backward), "tail" (after backward)
    stage: str = ""  # of input: "sample", "collate", "sampler", "wait" (for a worker), ""
    stack: tuple[Frame, ...] = ()  # user frames only, innermost first; empty when no user line led there
    leaf: str = ""  # top-level module of the frame that was running: "numpy", "PIL", "torch", or "" for user code
    leaf_function: str = ""  # name of the function that was running
    leaf_uses_torch: bool = False  # the module it stands in imports torch, or something of it
    seconds: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """One sample of the machine; shares are of one core unless said otherwise."""

    at_s: float  # seconds since the launch
    main_cpu: float = 0.0  # CPU of the training processes, in cores
    worker_cpu: float = 0.0  # CPU of their descendants, in cores
    foreign_cpu: float = 0.0  # CPU used by everything else on the machine, in cores
    core_wait: float = 0.0  # share of the time in which the busiest process's main thread was ready and had no core
    cores: tuple[float, ...] = ()  # busy share of each core, 0 to 1
    memory_bytes: int = 0  # resident bytes of the process tree
    private_bytes: int = 0  # of the largest process what is no file and not shared memory; 0 where it is not told
    available_bytes: int = 0  # of the machine, without swapping
    shm_used_share: float = 0.0
    read_bytes_s: float = 0.0
    gpu_busy: float = 0.0
    gpu_memory_bytes: int = 0
    gpu_clock_mhz: float = 0.0
    gpu_power_w: float = 0.0
    gpu_throttled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """How long the training is that was asked for, as its loops tell; 0: they do not."""

    passes: int = 0  # over the training data
    steps: int = 0  # batches in all, where the loops count them
    updates: int = 0  # steps of the optimizer in all, where a counter of those ends the training
    pass_steps: int = 0  # turns of the innermost loop, where it counts them: an epoch, it may be


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """What lies between two epochs, seen once in a deep run, in seconds: of a training whose epochs take long."""

    gap_s: float = 0.0
    validation_s: float = 0.0  # of all batches of the loaders, by those that were timed
    rollout_s: float = 0.0
    checkpoint_s: float = 0.0

    @property
    def whole_s(self) -> float:
        """Return all of it."""
        return self.gap_s + self.validation_s + self.rollout_s + self.checkpoint_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """The timed run of one rank in one line."""

    rank: int
    num_steps: int
    median_ms: float
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # median of the steady steps, by phase
    samples_per_step: float = 0.0  # 0 when not known
    hottest: Mapping[str, Frame] = field(default_factory=dict)  # the user line that most of a phase goes to
    exchange: Exchange | None = None  # of its gradients, where DistributedDataParallel makes it
    epoch_batches: int = 0  # in the last epoch that was recorded as a whole; 0 where none was
    epoch_s: float = 0.0  # from its first step to the first step of the next epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the recording ended."""

    reason: str = "unknown"  # "steps", "time", "script ended", "script failed", "interrupted", "killed", "unknown"
    exit_code: int | None = None
    error: str = ""  # last line of the script's own traceback
    at_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """What the deep run found: where time goes by line, and facts that timing alone cannot show."""

    lines: tuple[LineCost, ...] = ()
    num_steps: int = 0
    wall_s: float = 0.0  # seconds of the main thread that the sampler watched
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds by phase in the deep run
    between_epochs_s: float = 0.0  # seconds of the deep run between its epochs
    syncs: tuple[SyncPoint, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    retained: tuple[Retained, ...] = ()
    collector: CollectorFacts = field(default_factory=CollectorFacts)
    page_faults: PageFaults | None = None
    breaks: tuple[GraphBreak, ...] = ()
    compiled: tuple[CompiledFunction, ...] = ()
    prices: tuple[SettingTrial, ...] = ()
    denormals: tuple[Denormals, ...] = ()
    padding: tuple[Padding, ...] = ()
    exchange: Exchange | None = None
    arithmetic: Arithmetic | None = None
    convolutions: Convolutions | None = None
    precision: PrecisionTrial | None = None
    compiled_trial: CompiledTrial | None = None
    unused_graphs: UnusedGraphs | None = None
    unused_gradients: UnusedGradients | None = None
    timeline: tuple[Span, ...] = ()
    device_work: DeviceWork | None = None
    repeated: tuple[RepeatedForward, ...] = ()
    unchanging: tuple[LoopInvariant, ...] = ()
    unchanging_calls: tuple[UnchangingCall, ...] = ()
    repeated_calls: tuple[RepeatedCall, ...] = ()
    collected: Collected | None = None
    reductions: tuple[SlowReduction, ...] = ()
    slow_forms: tuple[SlowForm, ...] = ()
    micro_batches: MicroBatches | None = None
    fallbacks: tuple[Fallback, ...] = ()
    repeated_lines: tuple[RepeatedLine, ...] = ()
    line_operations: tuple[LineOperations, ...] = ()
    needless_copies: tuple[NeedlessCopy, ...] = ()
    frozen_calls: tuple[FrozenCalls, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    untrained_calls: tuple[UntrainedCalls, ...] = ()
    unused_rows: UnusedRows | None = None
    layout_trial: LayoutTrial | None = None
    backward: BackwardFacts | None = None
    framework: str = (
        ""  # whose loop trains: "lightning", "fabric", "transformers", "accelerate", or "" for the script's
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One recorded execution of a script; everything after it works without torch, device or script."""

    header: Header
    environment: Environment = field(default_factory=Environment)
    steps: tuple[Step, ...] = ()
    outside: tuple[Outside, ...] = ()
    loaders: tuple[LoaderFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    losses: tuple[float, ...] = ()
    samples_per_step: float | None = None
    steps_each: int = 1  # steps that one entry of `steps` is the mean of; more than one of a long whole training
    first_step: int = 1  # of the script's, from 1 on: those before belong to another training
    total_steps: int = 0  # where entries are means: how many there were; 0: as many as entries
    epoch_lengths: tuple[int, ...] = ()  # steps of each epoch, the first 4096, in the record of a whole training
    planned: Planned = field(default_factory=Planned)
    epoch_end: EpochEnd | None = None  # None: the timed run saw the ends of epochs itself, or nobody saw one
    utilization: tuple[Utilization, ...] = ()
    ranks: tuple[RankSummary, ...] = ()
    causes: Causes | None = None
    device_memory: DeviceMemory | None = None
    ceilings: tuple[Ceiling, ...] = ()
    probe_us: float = 0.0  # what the light probes add to a step, measured in a tight loop at the end of the run
    seams: Mapping[str, int] = field(default_factory=dict)  # dotted name -> hits
    notes: tuple[str, ...] = ()  # probes that were removed, and why
    end: End = field(default_factory=End)

    @property
    def num_steps(self) -> int:
        """Return how many steps were recorded."""
        return self.total_steps or len(self.steps) * self.steps_each
