"""What the deep run saw of the backward pass: nodes by forward line, passes by their call, Python in between."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flatout.schema.facts import Frame

__all__ = [
    "BackwardCall",
    "BackwardFacts",
    "BackwardLine",
    "BackwardPython",
    "DenseTable",
    "NeedlessPass",
    "Recomputed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardLine:
    """The nodes of one kind that one line of the forward pass made; figures are means of a step."""

    place: Frame | None = None
    node: str = ""  # by torch's name: "IndexBackward0"
    runs: float = 0.0
    seconds: float = 0.0  # from the beginning of a node to that of the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardCall:
    """The backward passes that one line begins; figures are means of a step."""

    place: Frame | None = None
    passes: float = 0.0
    seconds: float = 0.0  # of all nodes
    again_s: float = 0.0  # of nodes that an earlier pass of the step had run, where gradients were only added up since
    creates_graph: bool = False
    doubled_s: float = 0.0  # of what later passes compute because this one made a graph of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardPython:
    """A function of the user's that backward passes call; figures are means of a step, or of a run where it says so."""

    place: Frame  # where the function begins
    kind: str = ""  # "function": the backward of an autograd Function; "hook"
    runs: float = 0.0
    seconds: float = 0.0
    calls: float = 0.0  # of functions of C, a run
    leaves: Mapping[str, float] = field(default_factory=dict)  # "numpy", "tolist", "item": how often a run
    observes: bool = False  # it gave nothing back, and nothing it was given was another one afterwards


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseTable:
    """A parameter of many rows, of whose gradient, which has as many, a pass fills a few; figures are of a step."""

    place: Frame | None = None  # of the look-up
    node: str = ""  # by torch's name: "EmbeddingBackward0"
    rows: int = 0
    columns: int = 0
    touched: int = 0
    seconds: float = 0.0  # of making the gradient
    of_optimizer: float = 0.0  # share of the elements of all optimizers
    optimizer: str = ""  # class of the one that holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedlessPass:
    """Gradients that passes from one line compute, and that are thrown away before an optimizer reads them."""

    place: Frame | None = None
    parameters: int = 0
    inputs: int = 0  # tensors that are no parameters, whose gradients nobody reads
    num_bytes: int = 0
    seconds: float = 0.0  # a step, of nodes that lead to nothing else
    on_the_way: bool = False  # only parameters of layers that the gradient of something else goes through
    asked_for: bool = False  # of an input, by `torch.autograd.grad` in another pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardFacts:
    """The backward passes of a few steps."""

    steps: int = 0  # in which nodes were timed
    seconds: float = 0.0  # of all nodes, a step; without `torch.autograd.grad` where `backward` is called, too
    lines: tuple[BackwardLine, ...] = ()
    calls: tuple[BackwardCall, ...] = ()
    python: tuple[BackwardPython, ...] = ()
    tables: tuple[DenseTable, ...] = ()
    needless: tuple[NeedlessPass, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """Forward passes that the backward pass made again, of activations that a line did not keep."""

    place: Frame | None = None  # which asks for that
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    kept_rng: bool = True  # they draw the numbers that the first ones drew
    reentrant: bool = False
    free_bytes: int = 0  # of the machine's memory, in the end
    total_bytes: int = 0
