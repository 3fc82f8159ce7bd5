"""Facts about the training loader that several rules use."""

from flatout.rules.facts.user_lines import MIN_SAMPLES, costs, seconds
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

__all__ = [
    "batch_s",
    "cpu_share",
    "fraction_of_batch",
    "gave_batches",
    "per_sample_s",
    "picks_rows",
    "samples_per_batch",
    "training_loader",
    "waits_s",
]

SAMPLE = ("sample",)
MOST_OF_IT = 0.5  # 96% of the samples in a script of eight such functions, none in four whose samples are rows
CHEAP_SAMPLE_S = 60e-6  # below this, fetching a row costs more than the row: indexing, wrapping, appending


def training_loader(run: Run) -> LoaderFacts | None:
    """Return the training loader; of several, the one that takes the most time.

    A single loader whose batches were not seen in training counts if it gave about a batch per step and the script
    makes none itself: then it is neither a validation loader nor one that is read once to get all the data.
    """
    training = [loader for loader in run.loaders if loader.is_training]
    candidates = training or [loader for loader in run.loaders[:1] if len(run.loaders) == 1 and _feeds(run, loader)]
    return max(candidates, key=lambda loader: loader.fetches * (batch_s(loader) + loader.wait_s), default=None)


def _feeds(run: Run, loader: LoaderFacts) -> bool:
    steps = run.causes.num_steps if run.causes is not None else len(run.steps)
    by_hand, of_input = costs(run, Phase.INPUT, stages=("generator",)), costs(run, Phase.INPUT)
    enough = loader.fetches == 0 or 2 * loader.fetches >= steps
    few = sum(cost.samples for cost in by_hand) < MIN_SAMPLES
    return enough and (few or seconds(by_hand) < MOST_OF_IT * seconds(of_input))


def gave_batches(loader: LoaderFacts) -> bool:
    """Return whether a batch was ever taken from the loader."""
    return loader.fetches > 0 or loader.epochs_started > 0


def batch_s(loader: LoaderFacts) -> float:
    """Return the seconds of work one batch takes: samples, collate and sampler; 0 when that was not measured."""
    return loader.sample_s + loader.collate_s + loader.sampler_s


def fraction_of_batch(loader: LoaderFacts, spent_s: float) -> float:
    """Return `spent_s` as a share of the work one batch takes."""
    whole = batch_s(loader)
    return min(1.0, spent_s / whole) if whole > 0 else 0.0


def samples_per_batch(run: Run, loader: LoaderFacts) -> float:
    """Return how many samples a batch holds, 0 when nothing tells."""
    if loader.batch_size > 0:
        return loader.batch_size
    if loader.num_samples > 0 and loader.num_batches > 0:
        return loader.num_samples / loader.num_batches
    return run.samples_per_step or 0.0


def per_sample_s(run: Run, loader: LoaderFacts) -> float:
    """Return the seconds that fetching one sample takes, 0 when that was not measured."""
    samples = samples_per_batch(run, loader)
    return loader.sample_s / samples if samples > 0 else 0.0


def cpu_share(loader: LoaderFacts) -> float:
    """Return the share of the sample time that the fetching thread spent on a CPU; 1 when that was not measured.

    Time in which it was ready and had no core is left out: that is the machine's, not the sample's.
    """
    own_s = loader.sample_s - loader.sample_queued_s
    return min(1.0, loader.sample_cpu_s / own_s) if own_s > 0 else 1.0


def waits_s(loader: LoaderFacts) -> float:
    """Return the seconds a batch in which its samples wait for something other than the CPU."""
    return max(0.0, loader.sample_s - loader.sample_queued_s) * (1 - cpu_share(loader))


def picks_rows(run: Run, loader: LoaderFacts) -> bool:
    """Return whether a sample is a row of an array in memory, and so cheap that fetching it is the main cost.

    The limit of what is cheap depends on the machine; where most of the time is in the script's own functions, they are
    the main cost instead.
    """
    in_memory = loader.in_memory_bytes > 0 or (loader.prefix is not None and loader.prefix.shares_memory)
    return in_memory and 0 < per_sample_s(run, loader) < CHEAP_SAMPLE_S and not _calls_functions(run)


def _calls_functions(run: Run) -> bool:
    """Return whether most of the time in samples is spent in functions of the script that `__getitem__` calls."""
    samples = [*costs(run, Phase.INPUT, stages=SAMPLE), *costs(run, Phase.INPUT, process="worker", stages=SAMPLE)]
    inner = [cost for cost in samples if any(map(_gets, cost.stack[1:])) and not _gets(cost.stack[0])]
    seen = sum(cost.samples for cost in samples)
    return seen >= MIN_SAMPLES and seconds(inner) > MOST_OF_IT * seconds(samples)


def _gets(frame: Frame) -> bool:
    return frame.function.partition(".<locals>.<")[0].rpartition(".")[2] in ("__getitem__", "__getitems__")
