"""How well worker processes keep up: shared by rules so that they do not explain one wait in contradictory ways."""

from dataclasses import dataclass
from statistics import fmean, median

from flatout.rules.facts.loader_facts import cpu_share, samples_per_batch, training_loader, waits_s
from flatout.rules.facts.machine_facts import ALL_CORES, all_cores_busy, cores_in_use, is_disturbed, while_steps_ran
from flatout.rules.facts.user_lines import costs, seconds
from flatout.schema.finding import Breakdown
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import LoaderFacts, Run

__all__ = ["Harm", "read_bytes_s", "samples_wait", "storage_limits", "workers_harm"]

MIN_HARM = 0.10
MIN_FACTOR = 1.2
READ_FROM_MEMORY = 0.5  # of the timed run's wait: if the deep run waited less, files were in memory by then
MIN_WAITING = 0.15
MAX_CPU_SHARE = 0.4
MIN_WAIT_S = 0.3e-3  # a shorter wait of a sample may only be a moment off the CPU
ENOUGH_IN_FLIGHT = 16
FAST_STORAGE = 500e6  # bytes/s: the most that a SATA disk delivers; at this rate storage itself is the limit
ANY_STORAGE = 20e6  # bytes/s: at this rate with enough requests in flight, concurrency is not the limit


@dataclass(frozen=True, slots=True)
class Harm:
    """Workers that deliver a batch later than the training process would have made it."""

    share: float  # of the step, 0 to 1
    waited_ms: float
    made_ms: float
    batches: float  # in a step


def workers_harm(run: Run, breakdown: Breakdown) -> Harm | None:
    """Return the cost of waiting for workers where the wait is longer than the work for a batch; None elsewhere."""
    loader = training_loader(run)
    if loader is None or loader.num_workers == 0 or not run.steps or breakdown.mean_ms <= 0:
        return None
    if _was_read_before(run, breakdown):
        return None
    made_ms = (loader.sample_s + loader.collate_s) * 1000
    waited_ms = _usual_wait_ms(run)
    batches = fmean(max(1, step.num_batches) for step in run.steps)
    share = min(breakdown.share(Phase.INPUT), waited_ms * batches / breakdown.mean_ms)
    if made_ms <= 0 or waited_ms < MIN_FACTOR * made_ms or share * (1 - made_ms / waited_ms) < MIN_HARM:
        return None
    return Harm(share, waited_ms, made_ms, batches)


def samples_wait(run: Run, breakdown: Breakdown, loader: LoaderFacts) -> bool:
    """Return whether samples mostly wait for something other than the CPU, with few of them in flight."""
    if loader.sample_s <= 0 or loader.fetches == 0 or breakdown.share(Phase.INPUT) < MIN_WAITING:
        return False
    if max(1, loader.num_workers) >= ENOUGH_IN_FLIGHT or storage_limits(run, breakdown, loader):
        return False
    return _samples_wait_long(run, breakdown, loader)


def storage_limits(run: Run, breakdown: Breakdown, loader: LoaderFacts) -> bool:
    """Return whether samples wait for storage that already delivers what it can, or has many requests in flight."""
    if loader.sample_s <= 0 or loader.fetches == 0 or breakdown.share(Phase.INPUT) < MIN_WAITING:
        return False
    needed = ANY_STORAGE if loader.num_workers >= ENOUGH_IN_FLIGHT else FAST_STORAGE
    return read_bytes_s(run) >= needed and _samples_wait_long(run, breakdown, loader)


def read_bytes_s(run: Run) -> float:
    """Return the mean bytes a second read from storage while steps ran, by the whole training; 0 when not sampled."""
    samples = while_steps_ran(run)
    return fmean(sample.read_bytes_s for sample in samples) if samples else 0.0


def _samples_wait_long(run: Run, breakdown: Breakdown, loader: LoaderFacts) -> bool:
    if cpu_share(loader) >= MAX_CPU_SHARE:
        return False
    wait_s = waits_s(loader) / max(1.0, samples_per_batch(run, loader))
    return wait_s >= MIN_WAIT_S and not _wait_for_a_core(run, loader) and workers_harm(run, breakdown) is None


def _wait_for_a_core(run: Run, loader: LoaderFacts) -> bool:
    """Return whether samples may be waiting for a core: all cores are busy, or shared by too many processes.

    What the fetching thread waits for a core is known where the system counts it, and left out already. Then only
    threads of the training itself, which it may wait for, leave a doubt.
    """
    if loader.sample_queued_s > 0:
        return (cores_in_use(run) or 0.0) >= ALL_CORES * run.environment.num_cpus
    return all_cores_busy(run) or (is_disturbed(run) and loader.num_workers >= run.environment.num_cpus)


def _was_read_before(run: Run, breakdown: Breakdown) -> bool:
    """Return whether the deep run, which times the samples, hardly waited where the timed run did.

    Then the timed run read the files from disk, and the deep run finds them in memory: its sample times do not apply to
    the timed run. Host time of the deep run whose lines belong to the input is counted as input, as in the timed run.
    """
    causes = run.causes
    if causes is None or causes.num_steps == 0 or Phase.INPUT.value not in causes.phases_s:
        return False
    moved_s = seconds(costs(run, Phase.INPUT, stages=("handover", "generator")))
    deep_ms = (causes.phases_s[Phase.INPUT.value] + moved_s) / causes.num_steps * 1000
    return deep_ms < READ_FROM_MEMORY * breakdown.ms(Phase.INPUT)


def _usual_wait_ms(run: Run) -> float:
    """Return the median wait for one batch, without the first of each epoch."""
    column = STEP_PHASES.index(Phase.INPUT)
    usual = [step for step in run.steps if not step.first_of_epoch] or list(run.steps)
    return median(step.phases_ns[column] / max(1, step.num_batches) for step in usual) / 1e6
