"""Upper bounds of a speed-up: arithmetic on shares, and what overlapping work can reach on the available cores."""

from statistics import fmean, median

from flatout.analysis.headroom_stages import gain_between
from flatout.rules.facts.machine_facts import ALL_CORES, all_cores_busy, cores_in_use, while_steps_ran
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Breakdown, Ceiling
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Causes, LoaderFacts, Run

__all__ = [
    "MAX_SPEEDUP",
    "handover_s",
    "in_mean_steps",
    "input_gain",
    "share_of_forward",
    "share_outside",
    "speedup_of_input",
    "speedup_of_waits",
    "speedup_on_freed_cores",
    "speedup_with_workers",
    "speedup_without",
    "taken_by_workers",
]

MAX_SPEEDUP = 1000.0  # for a share that rounds to the whole step: huge, not infinite
SHARED_MEMORY_BYTES_S = 1.7e9  # what a worker reaches copying a 19 MB batch to shared memory
MOST_PASSES = 3
_MUCH = 0.1  # of a mean step
_INPUT = STEP_PHASES.index(Phase.INPUT)
MESSAGE_S = 0.2e-3  # queue, file descriptors and rebuilding of one batch in the training process


def speedup_without(share: float) -> float:
    """Return the speed-up when `share` of the time disappears."""
    return min(MAX_SPEEDUP, 1.0 / max(1.0 / MAX_SPEEDUP, 1.0 - max(0.0, share)))


def in_mean_steps(run: Run, breakdown: Breakdown, held: Ceiling) -> float:
    """Return the factor that scales a measured ceiling of the input up to the mean step.

    Rare, expensive work of the input, such as collecting the garbage of single samples every twentieth step, may be
    missing from the short stretches that are compared: they gave 3.7x and 1.9x where mean steps became 5.3x and 2.5x as
    fast without the input (`house_prices` and `movie_ratings` of the planted scripts).
    """
    waits_ms = [step.phases_ns[_INPUT] / 1e6 for step in run.steps[breakdown.warmup :]]
    if not waits_ms or breakdown.mean_ms <= 0:
        return 1.0
    unseen_ms = min(breakdown.mean_ms - held.median_ms * held.speedup, fmean(waits_ms) - median(waits_ms))
    return breakdown.mean_ms / (breakdown.mean_ms - unseen_ms) if unseen_ms >= _MUCH * breakdown.mean_ms else 1.0


def input_gain(
    breakdown: Breakdown,
    loader: LoaderFacts | None,
    fraction: float,
    headroom: tuple[Ceiling, ...] = (),
    run: Run | None = None,
) -> float:
    """Return the share of the step that is saved when `fraction` of the work for a batch is saved.

    Without workers the step waits for all of that work. With workers that are too slow, a step lasts as long as they
    need for a batch: the same fraction of the step is saved, but never more than the wait. Where the gain of holding a
    batch was measured precisely enough, it is taken as the wait: workers may lengthen the rest of the step, too.
    """
    held = gain_between(headroom, "", HELD_INPUT)
    waits = breakdown.share(Phase.INPUT)
    if held is not None and held.sure:
        ceiling = next(each for each in headroom if each.ceiling == HELD_INPUT)
        more = in_mean_steps(run, breakdown, ceiling) if run is not None else 1.0
        waits = max(0.0, 1 - 1 / (held.speedup * more))
    fraction = min(1.0, max(0.0, fraction))
    return min(waits, fraction) if loader is not None and loader.num_workers > 0 else waits * fraction


def speedup_of_input(
    run: Run,
    breakdown: Breakdown,
    loader: LoaderFacts | None,
    fraction: float,
    headroom: tuple[Ceiling, ...] = (),
) -> float:
    """Return the largest speed-up possible when `fraction` of the work for a batch is saved."""
    waits = speedup_without(input_gain(breakdown, loader, fraction, headroom, run))
    return max(waits, speedup_on_freed_cores(run, loader, fraction))


def speedup_of_waits(run: Run, breakdown: Breakdown) -> float:
    """Return the largest speed-up possible when nothing waits: the CPU work remains, spread over all cores.

    The CPU use is the median of the machine's samples after the warm-up: a validation or a compiler may use all cores.
    Nothing is bounded with a device, whose host may only spin while it waits. Only this bound sees threads that answer
    requests in the same process: a step of 35.7 ms waited 32 for its own service, which computed for 4 when all
    requests of a batch were under way (`feature_server` of the planted scripts: 8.0x measured, 13.8x by the wait).
    """
    machine, steps = run.environment, run.steps[breakdown.warmup :]
    if run.header.world_size > 1 or machine.device_kind != "cpu" or not steps:
        return MAX_SPEEDUP
    begin_s = (steps[0].start_ns - run.header.launched_ns) / 1e9
    looks = [each.main_cpu + each.worker_cpu for each in while_steps_ran(run) if each.at_s >= begin_s]
    used = median(looks) if looks else 0.0
    return max(1.0, machine.num_cpus / used) if used > 0 else MAX_SPEEDUP


def speedup_on_freed_cores(run: Run, loader: LoaderFacts | None, fraction: float) -> float:
    """Return the most that a CPU training gains from its workers' cores when `fraction` of their work is saved.

    Where all cores are busy, workers also lengthen forward and backward, and the account counts that time there: beside
    two workers on two cores, steps that waited for input 17% became 2.2x as fast without the workers (n=6 pairs). The
    training's own work remains; it may be spread over as many cores as it has threads.
    """
    machine, alone = run.environment, run.header.world_size == 1
    if loader is None or not (loader.num_workers and alone and machine.device_kind == "cpu" and all_cores_busy(run)):
        return 1.0
    samples = while_steps_ran(run)
    own, theirs = fmean(each.main_cpu for each in samples), fmean(each.worker_cpu for each in samples)
    cores = min(machine.torch_threads, machine.num_cpus, own + fraction * theirs)
    remains = own + (1 - min(1.0, fraction)) * theirs
    return max(1.0, min(cores / max(own, 0.01), machine.num_cpus / max(remains, 0.01)))


def taken_by_workers(
    run: Run, breakdown: Breakdown, loader: LoaderFacts | None, fraction: float, headroom: tuple[Ceiling, ...] = ()
) -> tuple[float, float]:
    """Return the share of the step that workers cost a CPU training by taking its cores, and the cores they use.

    It is what goes when `fraction` of their work is saved, the wait for a batch included, and never more than a
    measured gain of holding a batch; 0 where it is not more than the wait, and where others occupy the cores.
    """
    if (cores_in_use(run) or 0.0) < ALL_CORES * run.environment.num_cpus:
        return 0.0, 0.0
    share = 1 - 1 / speedup_on_freed_cores(run, loader, fraction)
    held = gain_between(headroom, "", HELD_INPUT)
    if held is not None:
        share = min(share, 1 - 1 / max(1.0, held.high if not held.sure else held.speedup))
    if share <= breakdown.share(Phase.INPUT) * fraction:
        return 0.0, 0.0
    return share, fmean(each.worker_cpu for each in while_steps_ran(run))


def share_of_forward(breakdown: Breakdown, causes: Causes, whole_s: float, fraction: float) -> float:
    """Return the share of the step that `fraction` of a forward pass takes, whose operations took `whole_s` seconds.

    A step is assumed to have at most three such passes, for training and validation; where forward takes longer, the
    watched pass is only a small part of the model.
    """
    forward_s = causes.phases_s.get("forward", 0.0) / max(1, causes.num_steps)
    watched = min(1.0, MOST_PASSES * whole_s / forward_s) if forward_s > 0 else 0.0
    return breakdown.share(Phase.FORWARD) * watched * min(1.0, fraction)


def share_outside(breakdown: Breakdown, causes: Causes, seconds: float) -> float:
    """Return the share of the step that `seconds` of each step of the deep run are, neither backward nor optimizer."""
    step_s = sum(causes.phases_s.values()) / max(1, causes.num_steps)
    most = 1 - breakdown.share(Phase.BACKWARD) - breakdown.share(Phase.OPTIMIZER)
    return min(most, seconds / step_s) if step_s > 0 else 0.0


def handover_s(loader: LoaderFacts) -> float:
    """Return the seconds it costs to hand one batch over from a worker to the training process."""
    return MESSAGE_S + loader.batch_bytes / SHARED_MEMORY_BYTES_S


def speedup_with_workers(run: Run, breakdown: Breakdown, loader: LoaderFacts, cpu_share: float) -> float:
    """Return the most that loading in worker processes could give.

    The rest of the step remains; CPU work can at best be spread evenly over the cores; waiting costs no core.

    Args:
        run: for the available cores and the cores in use now.
        breakdown: the account without workers.
        loader: the loader, for the cost of handing a batch over.
        cpu_share: share of the sample's time that is CPU work, 0 to 1.
    """
    step_s = breakdown.mean_ms / 1000
    loading_s = breakdown.ms(Phase.INPUT) / 1000
    measured = cores_in_use(run)
    work_s = step_s * measured if measured else step_s - loading_s * (1 - cpu_share)
    work_s += handover_s(loader)
    receiving_s = MESSAGE_S
    reachable_s = max(step_s - loading_s + receiving_s, work_s / max(1, run.environment.num_cpus))
    return max(1.0, min(MAX_SPEEDUP, step_s / reachable_s)) if reachable_s > 0 else 1.0
