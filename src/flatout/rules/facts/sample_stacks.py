"""Which part of the sampled loading is inside the dataset, and not only below the line that asks for a batch."""

from flatout.rules.facts.user_lines import costs
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, LoaderFacts, Run

__all__ = ["sample_lines", "where_samples_are_made"]


def where_samples_are_made(loader: LoaderFacts | None) -> str:
    """Return the process that makes the samples: "main" or "worker"."""
    return "worker" if loader is not None and loader.num_workers > 0 else "main"


def sample_lines(run: Run, loader: LoaderFacts | None) -> tuple[LineCost, ...]:
    """Return the cost of the user's lines that make samples: the dataset, its transforms.

    A dataset from a library has none; then the innermost user line is the loop over the loader, and changing that line
    would change nothing.
    """
    loops = _loop_lines(run, loader)
    return costs(
        run,
        Phase.INPUT,
        process=where_samples_are_made(loader),
        stages=("sample",),
        keep=lambda cost: bool(cost.stack) and cost.stack[0] not in loops,
    )


def _loop_lines(run: Run, loader: LoaderFacts | None) -> frozenset[Frame]:
    """Return the lines that ask for a batch: torch's own parts of the loader, and the wait for it, run below them."""
    if loader is None:
        return frozenset()
    own = ["wait", *(["collate"] if loader.default_collate else []), *(["sampler"] if loader.default_sampler else [])]
    below = (*costs(run, Phase.INPUT, stages=own), *costs(run, Phase.INPUT, process="worker", stages=own))
    asking = {cost.stack[0] for cost in below if cost.stack}
    return frozenset(asking | ({loader.iterated_at} if loader.iterated_at else set()))
