"""What the machine did while the steps ran."""

from statistics import fmean

from flatout.rules.facts.setting_trials import measured
from flatout.schema.run import Run, Utilization
from flatout.units import format_ratio, format_share

__all__ = [
    "ALL_CORES",
    "all_cores_busy",
    "busy_in_words",
    "cores_are_shared",
    "cores_in_use",
    "foreign_cores",
    "is_disturbed",
    "num_processes",
    "slowdown",
    "waited_for_cores",
    "while_steps_ran",
]

MAX_FOREIGN_CORES = 0.25
ALL_CORES = 0.85
MIN_WAITED, MOST_WAITED = 0.05, 0.9  # of the time, without a core: worth saying, and taken for at most


def while_steps_ran(run: Run) -> tuple[Utilization, ...]:
    """Return the samples of the machine taken between the first step's start and the last step's end."""
    if not run.steps:
        return ()
    launched = run.header.launched_ns
    first = (run.steps[0].start_ns - launched) / 1e9
    last = (run.steps[-1].start_ns + run.steps[-1].wall_ns - launched) / 1e9
    return tuple(sample for sample in run.utilization if first <= sample.at_s <= last)


def cores_in_use(run: Run) -> float | None:
    """Return the mean number of cores the training and its descendants used while steps ran; None when not sampled."""
    samples = while_steps_ran(run)
    return fmean(sample.main_cpu + sample.worker_cpu for sample in samples) if samples else None


def foreign_cores(run: Run) -> float:
    """Return the mean number of cores that others used while steps ran; 0 when not sampled."""
    samples = while_steps_ran(run)
    return fmean(sample.foreign_cpu for sample in samples) if samples else 0.0


def waited_for_cores(run: Run) -> float:
    """Return the share of the time in which the training thread was ready and had no core; 0 when not sampled."""
    samples = while_steps_ran(run)
    return fmean(sample.core_wait for sample in samples) if samples else 0.0


def slowdown(run: Run) -> float:
    """Return how many times as long steps take beside other programs, at least; 1 where these use little."""
    return 1 / (1 - min(MOST_WAITED, waited_for_cores(run))) if is_disturbed(run) else 1.0


def busy_in_words(run: Run) -> str:
    """Return how much of the machine others used while steps ran, and what that made of the steps; "" for little."""
    if not is_disturbed(run):
        return ""
    waited, samples = waited_for_cores(run), len(while_steps_ran(run))
    told = f"other processes used {foreign_cores(run):.2f} of {run.environment.num_cpus} cores while the steps ran"
    if waited < MIN_WAITED:
        return f"{told} (n={samples})"
    longer = f"steps take at least {format_ratio(slowdown(run))} as long"
    return f"{told} (n={samples}), and the training waited for a core {format_share(waited)} of the time ({longer})"


def is_disturbed(run: Run) -> bool:
    """Return whether other processes used enough of the machine to doubt the figures."""
    return foreign_cores(run) > MAX_FOREIGN_CORES


def cores_are_shared(run: Run) -> bool:
    """Return whether the ranks of a training on the CPU run more threads than there are cores, and could run fewer.

    Ranks bound to cores of their own may report the same number of cores: where fewer threads were tried and were not
    faster, no cores are shared.
    """
    machine, ranks = run.environment, num_processes(run)
    settable = ranks > 1 and machine.torch_threads > 1  # with one thread each, ranks exceed the cores: no setting helps
    if not settable or machine.device_kind != "cpu" or ranks * machine.torch_threads <= machine.num_cpus:
        return False
    price = measured(run, "threads")
    return price is None or price.share > 0


def num_processes(run: Run) -> int:
    """Return how many processes train together: the ranks, or the recorded processes where all report one rank."""
    ranks = len({rank.rank for rank in run.ranks})
    return len(run.ranks) if ranks == 1 and measured(run, "threads") else ranks


def all_cores_busy(run: Run) -> bool:
    """Return whether nearly all cores are in use, so that a thread that is not running may be waiting for one."""
    return (cores_in_use(run) or 0.0) + foreign_cores(run) >= ALL_CORES * run.environment.num_cpus
