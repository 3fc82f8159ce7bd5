"""One copy of what is kept for all ranks of a training on one machine.

Every rank has data set, transforms and sampler of its own, and keeps what its share of the samples gives; the others
find it there. Two ranks share only what has the same key (`pipeline.cache.disk.keys`: code, state and files that the
samples depend on), and no rank takes what another one wrote before it has held some of it against its own data set.
"""

import sys
import weakref
from collections.abc import Sequence
from typing import Any

from flatout.pipeline.cache.batch_layout import Rows, layout_of
from flatout.pipeline.cache.disk.keys import KeyLimits, key_of
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.ranks import SharedBlock, local_ranks
from flatout.pipeline.cache.row_store import RowStore, mapped_bytes
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import ask
from flatout.watch.dataset_state import random_states, restore_random_states
from flatout.watch.script_signals import any_but_signals

__all__ = ["name_for_ranks", "shared_store"]

_LIMITS = KeyLimits(seconds=10.0)  # the first batch waits for the key
_ALIGNED = 4096


def name_for_ranks(loader: Any, compiler: BatchCompiler | None, budget: MemoryBudget) -> str:
    """Return the name under which ranks find what is kept of `loader`; "" where there is one rank, or no key.

    What is read from memory anyway is not worth a key, and what is too much for all ranks together needs none: that of
    a million files takes ten seconds.
    """
    if local_ranks() < 2 or (compiler is not None and compiler.in_memory):
        return ""
    states = random_states()
    try:
        if not budget.fits(_bytes_of_one(loader, compiler) * len(loader.dataset) // local_ranks()):
            return ""
        return key_of(loader.dataset, loader.collate_fn, sys.byteorder, limits=_LIMITS).digest
    except any_but_signals():  # of the data set or its collate function: the script's own call will say it
        return ""
    finally:
        restore_random_states(states)


def _bytes_of_one(loader: Any, compiler: BatchCompiler | None) -> int:
    if compiler is not None:
        return sum(each.num_bytes for each in compiler.rows())
    found = layout_of(loader.collate_fn(ask(loader.dataset, [0])), 1)
    return 0 if found is None else found[0].num_bytes


def shared_store(name: str, rows: Sequence[Rows], num_samples: int, budget: MemoryBudget) -> RowStore | None:
    """Return the store that the ranks have under `name`, None where there can be none; each takes its part of it."""
    if not name or any(each.dtype is None for each in rows):
        return None
    flags = -(-num_samples // _ALIGNED) * _ALIGNED
    num_bytes = flags + mapped_bytes(rows, num_samples)
    if not budget.fits(num_bytes // local_ranks()):
        return None
    try:
        block = SharedBlock(f"{name} {rows!r}", num_bytes)
    except any_but_signals(OSError, AttributeError):  # no such memory on this system, or none is left
        return None
    store = RowStore(rows, num_samples, block.memory[flags:], flags=block.memory[:num_samples])
    budget.take(num_bytes // local_ranks(), store)
    weakref.finalize(store, block.close)
    return store
