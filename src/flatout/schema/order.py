"""The order: what the parent asks the probes of one script execution to do."""

from dataclasses import dataclass

from flatout.schema.trial import Pair, Selection

__all__ = ["ORDER_VARIABLE", "EditedFile", "Order", "TimingOrder", "VerifyOrder"]

ORDER_VARIABLE = "FLATOUT_ORDER"
"""The environment variable that names the order file; processes without it are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOrder:
    """Blocks of steps to time.

    With `arms`, every arm (fixes on top of `Order.fixes`) is timed against the base in alternating blocks inside this
    process, one arm after the other; without, the process as a whole is one block.
    """

    arms: tuple[tuple[Selection, ...], ...] = ()
    alpha: float = 0.002  # error probability an arm may spend, all looks together
    looks: tuple[int, ...] = (4, 8, 16, 32, 64, 128)  # pairs after which the data are looked at
    block_s: float = 0.25  # a block lasts at least so long
    max_s: float = 60.0  # for everything in this process
    skip: int = 2  # steps left out after each switch, at least
    drain: int = 0  # more of them after an arm is switched off: until what it left ready is used up
    seed: int = 0  # of the lot that decides which block of a pair comes first, and how long they are
    epoch_steps: int = 0  # by processes: blocks of whole epochs, timed with all that lies between their steps
    prior: tuple[tuple[Pair, ...], ...] = ()  # pairs of each arm from processes that ended too early
    turns: str = ""  # folder in which two processes tell each other whose block it is; with arms, rank 0 the others
    side: int = 0  # in it: 0 without the candidate, 1 with it
    core: int = -1  # on which the training threads of both stay; -1: where the system puts them
    ceilings: bool = False  # arms are no cures: each has an equal share of `max_s`, and none stays on
    alone_s: float = 0.0  # then the loader is drawn from, without any training, for so long
    as_trained: bool = False  # fixes act as in a training: what is kept serves nothing before its time
    without: bool = False  # leave-one-out: an arm names fixes of `Order.fixes` that are switched off in it


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOrder:
    """One execution whose training is taken down step by step, to be compared with another one's.

    `role` is "baseline" (writes states, gradients and the trace), "again" (the untouched script once more), "bare" (the
    same, and none of its modules is watched: only losses and the optimizers' parameters are taken down),
    "nudged" (weights moved by one unit in the last place, or by the share `nudge`), "reference" (captured steps in
    float64) or "candidate". All but the baseline replay its captured steps from its own states where `replay` says
    so, and write down how far off they are. Steps are optimizer steps, counted over all optimizers.
    """

    role: str
    captures: str  # folder of the baseline's captured states
    references: str = ""  # folder of the gradients in float64, where there are any
    steps: int = 64  # the baseline goes on until a second epoch has begun, where time allows; others stop there
    pass_batches: int = 0  # passes over a loader end after so many batches; 0: where they end by themselves
    first_whole: bool = False  # the first pass over each loader ends by itself all the same
    max_s: float = 20.0
    at: tuple[int, ...] = (0, 1, 3, 5, 8, 12, 17, 23)  # steps captured and replayed; fewer of a large model
    replay: bool = True  # False: leave the training alone, for bit equality
    nudge: float = 0.0  # "nudged": relative size of the move; 0: one unit in the last place
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedFile:
    """A file of the script that runs with another text in one execution; the file itself stays as it is."""

    path: str  # absolute, without links
    digest: str  # SHA-256 of what the file held when `text` was made of it
    text: str
    edits: tuple[str, ...] = ()  # names of those that have changed it


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One execution of the script under observation.

    `steps` ends the recording after that many steps past the first; without it, the recording ends when it is sound:
    see `flatout.probe.core.enough`. `max_s` bounds the time since the first step.
    """

    mode: str  # "timed", "deep", "whole", "timing", "verify", "loader" or "run"
    folder: str  # the run's folder; parts are written below it
    script: str  # as shown to people
    steps: int | None = None
    max_s: float = 60.0
    launched_unix_s: float = 0.0
    protect_files: bool = True
    all_devices: bool = False  # install the seams of transfers and syncs even when there is no accelerator
    fixes: tuple[Selection, ...] = ()  # applied from the start
    edited: tuple[EditedFile, ...] = ()  # served from the start, in every process
    least_steps: int = 0  # of a deep run, where it has time for them: there is something to be seen after so many
    first_step: int = 1  # that is recorded, timed or compared: those before belong to another training of the script
    ranks: bool = False  # "run": the processes that the launcher has started are ranks of one training
    shard: str = ""  # with `ranks`: each keeps a share of parameters, within "all" ranks or those of its "node"
    live: bool = False  # "run": each rank writes twice a second what it is doing
    timing: TimingOrder | None = None
    verify: VerifyOrder | None = None
