"""One rank of a training that its script knows nothing of: everything put in place, right after torch was imported."""

import atexit
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from flatout.machine import usable_cores
from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.account import RankAccount
from flatout.ranks.batch_norm import synchronize
from flatout.ranks.cut_calls import CutCalls
from flatout.ranks.ending import RankEnd
from flatout.ranks.gradients import LocalSpans, exchange_gradients
from flatout.ranks.group import RankGroup, join, join_machine
from flatout.ranks.hosts.leaving import RankLeaving
from flatout.ranks.input.shared_input import SharedInput
from flatout.ranks.local_rows import HERE
from flatout.ranks.random_rows import draw_whole_batches
from flatout.ranks.sharded.sharding import Sharding
from flatout.ranks.streams import begin_alike
from flatout.schema.order import Order
from flatout.schema.ranks import FOLDER_VARIABLE, MEMORY_LINK, OUTPUT_VARIABLE
from flatout.torch_loader.divided_workers import DividedWorkers

__all__ = ["train_as_rank"]

_attached: list[Any] = []
"""What this rank needs to its end."""


def train_as_rank(order: Order) -> None:
    """Make this process, which the launcher has started, a rank."""
    if _attached:
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seams, spans, account = Seams(), LocalSpans(), RankAccount(order.folder, rank, size)
    leaving = RankLeaving(os.environ[FOLDER_VARIABLE]) if os.environ.get("GROUP_WORLD_SIZE", "1") != "1" else None
    group, store = join(rank, size)
    end = RankEnd(account, store, rank, size)
    group.when_lost(end.lost)
    group.parted = end.parted
    groups = [group]
    calls = CutCalls(group, spans, account, end.stop)
    if leaving is not None:
        leaving.joined(lambda: any(one.waits for one in groups), lambda: "own" in account.facts, end.leave)
    _attached.extend((seams, group, store, calls))
    seeds = begin_alike(seams, _seed(store, rank))
    _divide_threads(seams)
    _step_aside(seams, calls, account)
    _divide_input(seams, account, lambda: calls.off)
    SharedInput(group, account, end.stop, off=lambda: calls.off, generators=[seeds]).install(seams)
    draw_whole_batches(seams)
    synchronize(seams, group)
    groups += _share_out(seams, order, calls, (group, store), account, end)
    exchange_gradients(seams, group, spans, account, end.stop)
    calls.install(seams, observed=order.mode != "run")
    os.register_at_fork(after_in_child=_forked)
    atexit.register(end.ended)


def _share_out(
    seams: Seams, order: Order, calls: CutCalls, joined: tuple[RankGroup, Any], account: RankAccount, end: RankEnd
) -> list[RankGroup]:
    """Let each rank keep a share of parameters, where the order says so: of all ranks, or of those of its machine.

    Returns the group of ranks that have shares of the same parameters.
    """
    if not order.shard:
        return []
    group, store = joined
    within = join_machine(group, store) if order.shard == "node" else group
    within.when_lost(end.lost)
    within.parted = end.parted
    sharding = Sharding(group, within, account, end.stop)
    sharding.install(seams, lambda: not calls.off)
    _attached.append(sharding)
    return [within]


def _seed(store: Any, rank: int) -> int:
    """Return where random streams begin that no script has seeded: rank 0 has drawn it."""
    if rank == 0:
        store.set("seed", str(random.SystemRandom().getrandbits(62)))
    return int(store.get("seed"))


def _divide_threads(seams: Seams) -> None:
    """Share the cores of this machine among its ranks, also where the script asks for a number of threads."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def set_num_threads(number: int) -> None:
            hits.count += 1
            original(max(1, number // ranks) if isinstance(number, int) else number)

        return set_num_threads

    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, usable_cores() // ranks))
    seams.wrap("torch:set_num_threads", make)


def _divide_input(seams: Seams, account: RankAccount, off: Callable[[], str]) -> None:
    """Let each worker of a loader run in one rank of this machine; `off()`: why not, any more."""
    shared = os.environ[FOLDER_VARIABLE]
    folders = [os.path.join(shared, name) for name in (MEMORY_LINK, "batches")]
    usable = [folder for folder in folders if os.path.isdir(folder)]
    local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    workers = DividedWorkers(usable, *local, off=off)

    def divided(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        return workers.iterator_made(original, lambda is_divided: account.count("divided" if is_divided else "alone"))

    seams.wrap("torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__", divided)
    seams.wrap("torch.utils.data._utils.worker:_worker_loop", lambda original, hits: workers.worker_loop(original))


def _step_aside(seams: Seams, calls: CutCalls, account: RankAccount) -> None:
    """Leave a script to itself that distributes itself, and one that computes parts of its models anew by hand."""

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            hits.count += 1
            calls.off = "the script distributes itself"
            account.facts["own"] = True
            _give_back_streams()
            return original(*args, **kwargs)

        return init_process_group

    def make_outer(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            if HERE.inside or not args:
                return original(*args, **kwargs)
            hits.count += 1
            account.whole("torch.utils.checkpoint", "what it computes again would have to be cut again")
            return original(_whole(args[0]), *args[1:], **kwargs)

        return checkpoint

    seams.wrap("torch.distributed:init_process_group", make)
    seams.wrap("torch.utils.checkpoint:checkpoint", make_outer)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes the whole batch, now and when it is called again in a backward pass."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = HERE.rows, HERE.whole
        HERE.rows, HERE.whole = None, True
        try:
            return function(*args, **kwargs)
        finally:
            HERE.rows, HERE.whole = before

    return call


def _give_back_streams() -> None:
    """Let this rank print where the launcher's other processes do."""
    kept = os.environ.get(OUTPUT_VARIABLE, "")
    if kept:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in zip(kept.split(","), (1, 2), strict=True):
            os.dup2(int(number), stream)


def _forked() -> None:
    """A child of this process is no rank: it computes what it is asked for, whole."""
    HERE.rows, HERE.whole, HERE.main = None, True, -1
