"""Streams (`IterableDataset`) without workers: read ahead by another process, and kept where passes are the same."""

import re
import weakref
from collections.abc import Callable
from typing import Any

from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.torch_loader.predicted.worker_shares import WorkerShares
from flatout.torch_loader.streamed.stream_pass import walk
from flatout.torch_loader.streamed.stream_refusal import is_stream, stream_refusal
from flatout.torch_loader.streamed.streamed_loader import StreamPlan, kept_batches
from flatout.units import format_bytes

__all__ = ["ServedStreams"]


class ServedStreams:
    """Serves all loaders over streams of which nothing shows that they are to be left alone."""

    def __init__(self, budget: MemoryBudget, hit: Callable[[], None], where: Callable[[], str], on_change: str) -> None:
        """Keep passes within `budget`; the others as in `LoaderCaches`."""
        self._plan = StreamPlan(
            hit=hit,
            stand_back=lambda reason: None,
            shares=WorkerShares(),
            where=where,
            on_change=on_change,
            room=budget.take,
        )
        self._refused: Any = weakref.WeakKeyDictionary()  # loader -> why it is left alone, "" where it is not

    def serve(self, loader: Any) -> bool:
        """Return whether `walk` is to be asked: a stream that shows no reason to leave it alone."""
        if not is_stream(loader):
            return False
        self._refused[loader] = stream_refusal(loader)
        return not self._refused[loader]

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself."""
        return walk(loader, self._plan, iterate)

    def explain(self, loader: Any) -> str:
        """Return one line on what was done with a stream, or why it is left as it is."""
        refused = self._refused.get(loader) or stream_refusal(loader)
        if refused:
            return f"left as it is: the loader of {type(loader.dataset).__name__} {refused}"
        known = self._plan.loaders.get(loader)
        if known is None:
            return "a stream, not read yet"
        share, kept = known.share, kept_batches(known)
        if share.reason and not share.taken:
            return f"left as it is: {_without_time(share.reason)}"
        read = f"a stream, read ahead by another process; {share.taken} of {share.asked} batches came from there"
        if kept.number:
            read += f", or from {kept.number} that are kept in {format_bytes(kept.num_bytes)} ({kept.given})"
        why = share.reason or (f"nothing is kept: {kept.reason}" if kept.reason else "")
        return f"{read}; {why}" if why else read


def _without_time(reason: str) -> str:
    """Return a reason without what was measured, which is another number in each run."""
    return re.sub(r" in [\d.,]+ \S+, less than", " in less than", reason)
