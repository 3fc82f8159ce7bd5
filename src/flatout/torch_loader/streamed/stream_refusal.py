"""Which loaders over streams no other process may read ahead, by what shows in the loader."""

from typing import Any

__all__ = ["is_stream", "stream_refusal", "unusual_start"]


def is_stream(loader: Any) -> bool:
    """Return whether a loader reads a stream, and no data set with an index."""
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def stream_refusal(loader: Any) -> str:
    """Return why no other process may read the stream of `loader` ahead, by what it is; empty: one may."""
    from torch.utils.data import DataLoader, IterDataPipe

    from flatout.watch.dataset_state import in_a_worker

    if loader.num_workers:
        return f"reads a stream, of which workers ({loader.num_workers}) read a part each: others would read others"
    if isinstance(loader.dataset, IterDataPipe) or type(loader)._get_iterator is not DataLoader._get_iterator:
        return "reads a stream in a way of its own"
    return "was left alone before" if in_a_worker() else unusual_start(loader)


def unusual_start(loader: Any) -> str:
    """Return why processes are not started for `loader` as torch does it by itself, an empty string for nothing."""
    import multiprocessing
    import sys

    method = multiprocessing.get_start_method(allow_none=True)
    if sys.platform != "linux" or method not in (None, "fork"):
        return f"would start its workers as new processes ({method or sys.platform})"
    if loader.multiprocessing_context is not None or loader.timeout or not getattr(loader, "in_order", True):
        return "asks for a way to start workers, a timeout or batches out of order"
    return ""
