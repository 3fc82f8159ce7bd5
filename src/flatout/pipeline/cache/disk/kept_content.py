"""Kept rows as arrays that another process can take up, with what it must know of them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import Rows, layout_of
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.cache.row_store import RowStore
from flatout.pipeline.inspect.determinism import ask, some_indices

__all__ = ["Content", "content_of", "take_up"]

Content = tuple[dict[str, torch.Tensor], dict[str, object]]
"""All rows as arrays, and how samples are laid out in them."""


def content_of(kept_rows: RowCache, pause: Callable[[], None]) -> Content:
    """Return all rows as arrays, and what `take_up` must know of them."""
    store, compiler = kept_rows.store, kept_rows.compiler
    assert store is not None
    last = compiler is None or compiler.stage + 1 == compiler.num_stages
    stage = -1 if last or compiler is None else compiler.stage
    return store.arrays(pause, kept_rows.room), _facts(store.rows, store.num_samples, stage)


def take_up(kept_rows: RowCache, dataset: Any, content: Content) -> bool:
    """Return whether rows that another process kept are what would be kept here; from now on they are."""
    arrays, facts = content
    stage, number, compiler = facts.get("stage"), len(dataset), kept_rows.compiler
    if compiler is not None and type(stage) is int and stage < compiler.num_stages:
        compiler.keep(stage % compiler.num_stages)
        layout, rows = compiler.layout, compiler.rows()
    else:
        some = some_indices(number, 3)
        found = layout_of(kept_rows.collate(ask(dataset, some)), len(some))
        if found is None or stage != -1:
            return False
        layout, rows = found[0], found[0].rows
    if facts != _facts(rows, number, stage):
        return False
    kept_rows.layout, kept_rows.store = layout, RowStore.of(rows, number, arrays)
    return True


def _facts(rows: Sequence[Rows], number: int, stage: int) -> dict[str, object]:
    """Return what says how samples are laid out; the last stage is -1."""
    told = [[list(each.shape), str(each.dtype), list(each.axes)] for each in rows]
    return {"rows": told, "num_samples": number, "stage": stage}
