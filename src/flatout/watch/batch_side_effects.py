"""What making a batch does besides, found out in a forked copy of the process: whether another one may make it, too."""

import copy
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatout.watch.components import parts
from flatout.watch.files.file_questions import read_by_number
from flatout.watch.files.opened_files import OpenedFiles
from flatout.watch.forked_copy import ask_a_copy, in_a_copy
from flatout.watch.freshness import Freshness
from flatout.watch.memory.object_kinds import POINTERS

__all__ = ["BatchSideEffects", "keeps_results", "make_some", "told_of", "unfollowed"]

_LONGEST_S = 20.0
_BATCHES = 2


def unfollowed(fresh: Freshness) -> str:
    """Return what of a data set may change unseen, an empty string for nothing."""
    graph = fresh.graph
    if graph.unwatched:
        return f"holds {graph.unwatched[0]}, which may change unseen"
    opaque = graph.opaque - POINTERS
    if opaque:
        return f"holds objects of the compiled class {min(opaque)}, which may change unseen"
    return ""


def keeps_results(*things: Any) -> bool:
    """Tell whether a function that remembers what it gave (`functools.lru_cache`) is among the parts of `things`."""
    return any(isinstance(part, functools._lru_cache_wrapper) for thing in things for part in parts(thing))


@dataclass(frozen=True)
class BatchSideEffects:
    """What was found out by making some batches in a copy of the process.

    Attributes:
        against: what speaks against making them in other workers, an empty string for nothing.
        sets_up: the data set sets itself up at its first batch.
    """

    against: str = ""
    sets_up: bool = False


def make_some(loader: Any, fresh: Freshness, *, may_set_up: bool) -> BatchSideEffects:
    """Make some batches of `loader` in a copy of the process; `may_set_up`: its data set may set itself up at first."""
    if in_a_copy():
        return BatchSideEffects("is a copy")
    answer = ask_a_copy(functools.partial(_made, loader, fresh, may_set_up), _LONGEST_S)
    if answer.failed:
        return BatchSideEffects(f"cannot be called in a copy of the process: {answer.failed}")
    if answer.wrote:
        return BatchSideEffects(f"writes to {answer.wrote} while it is read")
    found: BatchSideEffects = answer.value
    return found


def _made(loader: Any, fresh: Freshness, may_set_up: bool) -> BatchSideEffects:
    iterator, ear, numbers, sets_up = _alone(loader), OpenedFiles(), read_by_number(), False
    asked = told_of(sys.modules["torch"].utils.data.get_worker_info)
    for number in range(_BATCHES):
        if next(iterator, None) is None:
            break
        changed = fresh.left_behind()
        if changed and (number or not may_set_up):
            return BatchSideEffects(f"changes while it is read: {changed}")
        if changed:
            fresh, sets_up = Freshness(loader, files="passed"), True
    sys.setprofile(None)
    if asked:
        return BatchSideEffects("asks which worker it is in")
    if numbers:
        return BatchSideEffects(f"reads an open file by its number ({numbers[0]}), which may change unseen")
    if ear.written:
        return BatchSideEffects(f"writes to {ear.written} while it is read")
    if ear.taken() and keeps_results(loader.dataset, loader.collate_fn):
        return BatchSideEffects("caches results of functions that read files (lru_cache)")
    return BatchSideEffects(sets_up=sets_up)


def _alone(loader: Any) -> Any:
    """Return an iterator that makes batches in this process."""
    from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

    alone = copy.copy(loader)
    own = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False, "timeout": 0, "pin_memory": False}
    vars(alone).update({**own, "_iterator": None})
    return _SingleProcessDataLoaderIter(alone)


def told_of(function: Callable[..., Any]) -> list[bool]:
    """Return a list that gets an item at each call of `function` from now on, under whatever name."""
    calls: list[bool] = []
    code = function.__code__

    def noted(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code is code:
            caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back is not None else ""
            if not str(caller).startswith("torch.utils.data."):  # whose collate function asks, too
                calls.append(True)

    sys.setprofile(noted)
    return calls
