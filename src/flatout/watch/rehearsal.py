"""The first look at a data set, in a copy of the process: whether it can be looked at here without leaving a trace."""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flatout.watch.batch_owners import owned
from flatout.watch.batch_side_effects import told_of
from flatout.watch.dataset_state import random_states, restore_random_states, same, undrawn
from flatout.watch.files.file_questions import Asked, asked_of_files, may_be_data, read_by_number
from flatout.watch.files.opened_files import OpenedFiles, files_held
from flatout.watch.forked_copy import ask_a_copy, in_a_copy
from flatout.watch.memory.object_graph import available
from flatout.watch.other_threads import other_threads_act
from flatout.watch.refused_writes import refused_write
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard
from flatout.watch.state_watch import StateWatch

__all__ = ["Rehearsal", "Tried", "rehearse"]

_FEW = 2  # samples of a batch that is looked at for what it shares with the data set
_WORKERS = (0, 1)  # whose first function is tried
_LOCKS = ("-shm", ".lock", "lock.mdb")  # of SQLite, LMDB and others: written by who reads
_BY_NUMBER = {"pread", "preadv", "readv"}  # imported by name
_WHICH_WORKER = {"get_worker_info", "_worker_info"}


@dataclass(frozen=True)
class Rehearsal:
    """What a copy of the process found.

    Attributes:
        reason: why the loader is left as it is; an empty string where nothing speaks against looking at it here.
        changes: looking changes something that can be put back.
        asked: what samples ask of files.
        found: what was found out besides, of plain values.
    """

    reason: str = ""
    changes: bool = False
    asked: Asked = frozenset()
    found: Any = None


Tried = tuple[str, Any]
"""Why a loader is left as it is, an empty string for no reason, and what else was found out, of plain values."""


def rehearse(loader: Any, begin: Callable[[], Tried]) -> Rehearsal:
    """Let a copy of the process do what `begin` does; nothing is done here.

    In such a copy itself nothing is found out.
    """
    if in_a_copy():
        return Rehearsal()
    name = type(loader.dataset).__name__
    if not available():
        return Rehearsal("flatout's compiled code is missing here, or does not know the object layout of this Python")
    random_states()  # which imports numpy.random where NumPy is there: once, and not in each copy (30 ms)
    answer = ask_a_copy(functools.partial(_rehearsed, loader, begin))
    if answer.failed:
        return Rehearsal(f"{name} cannot be read in a copy of the process: {answer.failed}")
    if answer.wrote:
        return Rehearsal(f"{name} writes to {answer.wrote} while it is read")
    found: Rehearsal = answer.value
    if found.changes and not found.reason and other_threads_act():
        return Rehearsal(f"{name} changes while it is read, and other threads run that may change it, too")
    return found


def _rehearsed(loader: Any, begin: Callable[[], Tried]) -> Rehearsal:
    dataset, collate, name = loader.dataset, loader.collate_fn, type(loader.dataset).__name__
    watch = StateWatch([(name, dataset), ("collate_fn", collate)])
    if watch.graph.unwatched:
        return Rehearsal(f"{name} holds {watch.graph.unwatched[0]}, which may change unseen")
    differs = _of_workers(loader, watch)
    if differs:
        return Rehearsal(f"{name}: {differs}")
    odd = _of_length(dataset)
    if odd:
        return Rehearsal(f"{name} {odd}")
    logged, ear, held, numbers = _records_made(), OpenedFiles(), files_held(), read_by_number()
    with asked_of_files() as asked, StateGuard(dataset, collate) as untouched:
        reason, found = begin()
        odd = "" if reason else _of_many(dataset)
    reason = f"{name} {odd}" if odd else reason
    if logged:
        return Rehearsal(f"{name} logs while it is read")
    numbers += sorted(_BY_NUMBER & watch.graph.names.globals)
    if numbers:
        return Rehearsal(f"{name} reads an open file by its number ({numbers[0]}), which may change unseen")
    if ear.written and not reason:  # and caught what came of it
        return Rehearsal(f"{name} writes files while it is read: {ear.written}")
    trace = watch.left_behind(untouched.covered)
    if trace:
        return Rehearsal(f"{name} changes while it is read: {trace}")
    shared = "" if reason else _shares(loader, watch)
    asked |= {name for name in files_held() if name not in held and not name.endswith(_LOCKS)}  # opened by C code
    return Rehearsal(reason or shared, untouched.changed, frozenset(filter(_is_data, asked)), found)


def _is_data(name: str) -> bool:
    return may_be_data(name) and os.path.isdir(os.path.dirname(name))


def _records_made() -> list[str]:
    """Return a list that gets the name of each logger that is told something from now on; for a copy of the process."""
    names: list[str] = []
    make = logging.getLogRecordFactory()

    def noted(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        names.append(record.name)
        return record

    logging.setLogRecordFactory(noted)
    return names


def _of_length(dataset: Any) -> str:
    """Return what is odd about asking for the length: that is asked for more often here than by the plain loader."""
    before = random_states()
    with contextlib.suppress(Exception):  # `refusal` says it
        if len(dataset) != len(dataset):
            return "has a different length each time"
        if not undrawn(before, random_states()):
            return "draws random numbers to compute its length"
    return ""


def _of_many(dataset: Any) -> str:
    """Return how samples that are asked for together differ from those asked for one by one; "" where they do not."""
    many = getattr(dataset, "__getitems__", None)
    length = len(dataset)
    if not callable(many) or length < _FEW:
        return ""
    some = [length - 1, 0, length // 2]
    try:
        with StateGuard(dataset):
            states, asked = random_states(), list(some)
            together = many(asked)
            after = random_states()
            restore_random_states(states)
            alone = [many([index])[0] for index in some]
    except any_but_signals():  # one of the two ways is not there: nobody can hold one against the other
        return ""
    alike = asked == some and len(together) == len(alone)
    if alike and undrawn(after, random_states()) and not undrawn(states, after):
        return ""  # random ones, in the same order
    alike = alike and all(same(one, other) for one, other in zip(together, alone, strict=True))
    return "" if alike else "returns different samples when several are requested at once (`__getitems__`)"


def _of_workers(loader: Any, watch: StateWatch) -> str:
    """Return how samples depend on the worker that makes them, an empty string where they do not."""
    if not loader.num_workers:
        return ""
    asked = _WHICH_WORKER & (watch.graph.names.globals | watch.graph.names.attributes)
    if asked or _asks_for_its_worker(loader.dataset):
        return f"it asks which worker it is in ({min(asked, default='get_worker_info under another name')})"
    if loader.worker_init_fn is None:
        return ""
    with StateGuard():
        for worker in _WORKERS:
            loader.worker_init_fn(worker)
            what = watch.look_deep()
            if what:
                return f"its workers differ: worker_init_fn changes {what}"
    return ""


def _asks_for_its_worker(dataset: Any) -> bool:
    calls = told_of(torch.utils.data.get_worker_info)
    with StateGuard(dataset), contextlib.suppress(Exception):  # the script's own call will say it
        dataset[0]
    sys.setprofile(None)
    return bool(calls)


def _shares(loader: Any, watch: StateWatch) -> str:
    """Return what of a batch is the data set's own, an empty string for nothing."""
    if loader.collate_fn is torch.utils.data.dataloader.default_collate:
        return ""
    length = len(loader.dataset)
    some = sorted({0, length - 1})[:_FEW]
    many = getattr(loader.dataset, "__getitems__", None)
    try:
        batch = loader.collate_fn(many(some) if callable(many) else [loader.dataset[index] for index in some])
    except any_but_signals() as error:  # a stranger's function on a batch of a size it may never have seen
        return f"its collate function {writes}" if (writes := refused_write(error)) else ""
    return f"its batches hold {what}" if (what := owned(batch, watch.graph)) else ""
