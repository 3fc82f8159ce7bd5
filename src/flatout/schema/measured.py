"""What a deep run measured of a script's settings, masks, exchanges and operations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flatout.schema.facts import Frame

__all__ = [
    "Arithmetic",
    "Collected",
    "CompiledTrial",
    "Convolutions",
    "Denormals",
    "DeviceKernel",
    "DeviceMemory",
    "DeviceWork",
    "Exchange",
    "Fallback",
    "FrozenCalls",
    "LayoutTrial",
    "LineOperations",
    "LoopInvariant",
    "MicroBatches",
    "NeedlessCopy",
    "Padding",
    "PrecisionTrial",
    "RepeatedForward",
    "RepeatedLine",
    "SettingTrial",
    "SlowReduction",
    "Span",
    "UntrainedCalls",
    "UnusedGradients",
    "UnusedGraphs",
    "UnusedRows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingTrial:
    """What a setting of the script costs: steps with it and with another one, in turn, in the deep run."""

    switch: str  # "threads", "denormals" or "gradients"
    own: float = 0.0  # the script's setting
    tried: float = 0.0  # the other one
    share: float = 0.0  # of forward, backward and optimizer that goes with the other one; below 0 where that is slower
    steps: int = 0  # of each, at least
    ordered: float = 0.5  # share of pairs of steps, one of each, in which the other one is faster; 0.5 when all alike
    place: Frame | None = None  # where the script sets it


@dataclass(frozen=True, slots=True, kw_only=True)
class Denormals:
    """Numbers too small for full precision, of one kind of tensors, in the middle of the deep run or at its end."""

    where: str  # "weights", "gradients", "optimizer state"
    elements: int = 0  # looked at
    share: float = 0.0  # of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Positions of sequences that only fill up a batch, as the model's own masks say."""

    source: str  # "key_padding_mask", "attention_mask", "padding_idx"
    batches: int = 0
    positions: int = 0
    padded: int = 0
    cut_off: int = 0  # padded positions in which every row of the batch is padded: a shorter batch is the same
    place: Frame | None = None  # the call of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How DistributedDataParallel exchanged gradients on one rank, as its own clock and the deep run saw it."""

    steps: int = 0  # optimizer steps looked at
    exchanges: float = 0.0  # backward passes with an exchange, in each step
    needless: float = 0.0  # of these, those after which the next one added to the same gradients
    exposed_s: Mapping[str, float] = field(default_factory=dict)  # number of an exchange -> how long it alone ran
    elements: Mapping[str, int] = field(default_factory=dict)  # the same -> elements of what the model was called with
    contents: tuple[str, ...] = ()  # digests of what the model was first called with, call by call
    exchange_s: float = 0.0  # median of the whole length of an exchange
    step_s: float = 0.0  # median of the deep run's steps
    place: Frame | None = None  # of the call of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one thread or worker did for a while, in the few steps that a deep run drew as they ran."""

    lane: str  # "steps", "training thread", "reading", "worker 0", "device"
    name: str  # a phase, "step 12", "sample", "collate", "kernel", "copy to the device"
    start_ns: int  # after the first of these steps began; negative for what was under way then
    wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What torch's allocator of CUDA memory said at the end, of the device in use then."""

    retries: int = 0  # since the first step: free memory had to be handed back before a request could be met
    total_bytes: int = 0  # of the device
    allocated_bytes: int = 0  # most at once, by tensors
    reserved_bytes: int = 0  # most at once, with what was kept for later


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The operations of one forward pass on a device, and what that device could do."""

    flops: Mapping[str, float] = field(default_factory=dict)  # "convolution float16 channels-first": how many
    attention_flops: float = 0.0  # of these, products before and behind a softmax, each on its own
    attention_at: Frame | None = None
    float32_flops_s: float = 0.0  # most float32 operations a second without tensor cores; 0 when not known
    tf32_possible: bool = False
    matmul_precision: str = ""  # "highest", "high", "medium"
    unaligned_flops: float = 0.0  # in 16-bit products of which a row is no multiple of 16 bytes
    unaligned_at: Frame | None = None
    unaligned_sizes: tuple[int, ...] = ()  # rows, inner size and columns of the largest of these products


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions:
    """Convolutions of new shapes and known ones in the deep run, and whether cuDNN searches for their algorithms."""

    search: str = "off"  # "on", "off", or "deterministic" where the script asks for algorithms that are
    steps: int = 0  # with convolutions, after the first few
    new_steps: int = 0  # of these, steps with a shape that no step before them had
    new_s: float = 0.0  # median of forward, backward, optimizer and waiting in such a step
    known_s: float = 0.0  # the same in the others


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedForward:
    """Calls of the model, from one place, on what it had just been given, whose outputs got no gradient."""

    place: Frame | None = None
    count: int = 0
    steps: int = 0  # that were looked at
    seconds: float = 0.0  # of all these calls
    changed: int = 0  # of them, made after the module's weights or buffers had been written to
    marked: int = 0  # of them, that drew random numbers or wrote to the module's buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Rows that the model was given without gradients, and how many of those it is trained on are among them."""

    calls: int = 0  # without gradients
    rows: int = 0  # that these calls were given, the first 64 of each
    checked: int = 0  # rows of calls with gradients
    matched: int = 0  # of those, seen without gradients first
    steps: int = 0
    steps_with_calls: int = 0  # in which a call without gradients was made
    acting: tuple[Frame, ...] = ()  # user lines that led to calls without gradients, and to none with them
    learning: tuple[Frame, ...] = ()  # those that led to calls with gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopInvariant:
    """Operations of one step, at one line, that gave what they had given in the step before."""

    place: Frame | None = None
    operation: str = ""  # the costliest of them, by torch's name
    seconds: float = 0.0
    whole_s: float = 0.0  # of all operations of the step inside outermost modules, or outside of them
    outside: bool = False  # of outermost modules


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """Calls of the model whose gradients one step adds up, one by one and put together: medians of passes in turn."""

    count: int = 0  # in a step
    rows: int = 0  # of one
    joined: int = 0  # that were put together: as many as memory allows
    n: int = 0  # passes of each kind
    apart_s: float = 0.0  # forward and backward of one
    together_s: float = 0.0  # the same where they are put together
    stack: tuple[Frame, ...] = ()  # of the call, innermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowReduction:
    """Reductions of one forward pass, at one line, and what the longest takes by itself, in two ways."""

    place: Frame | None = None
    operation: str = ""  # the longest of them, by torch's name
    instead: str = ""  # what comes to the same
    seconds: float = 0.0
    whole_s: float = 0.0  # of all operations of the pass
    alone_s: float = 0.0  # of the longest, timed again on other numbers of its shape
    other_s: float = 0.0  # of what comes to the same
    shape: tuple[int, ...] = ()  # of what the longest goes over
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowForm:
    """Calls of one step, at one line, that come to the same in another form: the shortest of passes of both in turn."""

    place: Frame | None = None
    operation: str = ""
    instead: str = ""  # the other form
    calls: int = 0
    seconds: float = 0.0  # of their forward passes in the step
    n: int = 0  # timed passes
    forward_s: float = 0.0  # as it is written, the longest of the calls: forward
    alone_s: float = 0.0  # the same with its backward pass, where it has one
    other_s: float = 0.0  # the other form
    with_backward: bool = False
    picked: bool = False  # only indices come out of it, and gradients are recorded
    shapes: tuple[tuple[int, ...], ...] = ()  # of what the longest of the calls was given
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """An operation that the device leaves to the CPU, as torch said at its first call."""

    place: Frame | None = None  # of that call
    operation: str = ""  # by torch's name; "" where that was not said
    device: str = ""  # "MPS"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKernel:
    """All launches of one kernel in the steps of the timeline."""

    name: str
    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """What the device did in the steps of the timeline, as torch's profiler saw it."""

    num_steps: int
    wall_s: float = 0.0  # of these steps
    busy_s: float = 0.0  # of which at least one kernel or copy was under way
    num_kernels: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)  # by kind: "kernel", "copy to the device", ...
    longest: tuple[DeviceKernel, ...] = ()  # the kernels that took most, all launches of one together
    reason: str = ""  # why nothing was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionTrial:
    """What forward and backward of a model of float64 take, and those of its copy in float32: medians."""

    model: str = ""
    n: int = 0  # passes of each type; 0: not measured
    float64_s: float = 0.0
    float32_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTrial:
    """What forward and backward of a model take as it is written and compiled, its Python numbers held: medians."""

    model: str = ""
    place: Frame | None = None  # where its forward pass begins
    n: int = 0  # passes of each kind; 0: not measured
    written_s: float = 0.0
    compiled_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGradients:
    """Gradients that backward passes compute of parameters that no optimizer holds."""

    n: int = 0  # steps looked at
    parameters: int = 0
    num_bytes: int = 0  # of these gradients
    all_bytes: int = 0  # of all gradients of such a step
    largest: str = ""  # name of the largest of these parameters
    seconds: float = 0.0  # a step, of what leads to nothing else: median
    place: Frame | None = None  # that calls the module which has it
    untrained: str | None = None  # the part of that module, "" for all of it, of which no parameter is trained
    given_gradients: bool = True  # that module is called with tensors that ask for gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGraphs:
    """What a pass of a model takes with a graph that no backward pass uses, and without: medians of blocks in turn."""

    model: str = ""
    n: int = 0  # blocks of each kind; 0: not measured
    piled: int = 0  # graphs alive together; 0: each is let go before the next
    with_s: float = 0.0
    without_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedLine:
    """A line of the user's code that ran often in one step of the deep run."""

    place: Frame
    count: int = 0
    seconds: float = 0.0  # in that step, while it was traced


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOperations:
    """The operations of one forward pass that one line of the user's code called."""

    place: Frame
    count: int = 0
    seconds: float = 0.0
    floor_s: float = 0.0  # what as many operations on next to nothing take
    update_s: float = 0.0  # an addition of next to nothing
    parameters: int = 0  # that they were given
    kinds: tuple[str, ...] = ()  # by torch's names, that which took most first


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedlessCopy:
    """Copies that one line makes in a forward pass, and that nothing needs."""

    kind: str  # "clone", "repeat", "growing", "cast"
    place: Frame | None = None
    count: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    whole_s: float = 0.0  # of all operations of the pass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenCalls:
    """Calls, from one place, of a module that learns nothing and draws nothing."""

    place: Frame | None = None
    module: str = ""
    calls: int = 0
    steps: int = 0  # that were looked at
    seconds: float = 0.0  # of all these calls
    rows: int = 0  # of the inputs of the last few of them, that were looked at
    repeated: int = 0  # of these, rows that had been seen in an earlier step
    row_bytes: int = 0  # of one row of the input
    output_bytes: int = 0  # of one row of the output


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedCalls:
    """Calls, from one place, of a module whose results no update of a weight depends on."""

    place: Frame | None = None
    module: str = ""
    calls: int = 0
    steps: int = 0  # that were followed
    seconds: float = 0.0  # of the operations in them, and of those on their results
    whole_s: float = 0.0  # of all operations of these steps
    with_grad: bool = False  # they recorded gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedRows:
    """Rows of a projection's output that the loss does not read, and what computing all rows takes: medians."""

    place: Frame | None = None
    rows: int = 0
    unused: int = 0
    width: int = 0  # of the output
    n: int = 0  # timed passes; 0: not measured
    all_s: float = 0.0  # forward and backward of the projection, and of the loss where it is known, for all rows
    used_s: float = 0.0  # the same for the others alone


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTrial:
    """What forward and backward of a model of images take channels-first and channels-last: medians."""

    model: str = ""
    place: Frame | None = None  # of the call
    n: int = 0  # passes of each; 0: not measured
    first_s: float = 0.0
    last_s: float = 0.0
