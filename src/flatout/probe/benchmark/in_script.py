"""The loaders of a script, measured where it would take its first training step; then the script ends.

Training loaders are those that the script draws from, with gradients on, before its first backward pass, and that have
a pass under way by then. Neither that backward pass nor a step of an optimizer is made.
"""

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from flatout.probe.benchmark.loader_benchmark import measured
from flatout.probe.core.part_file import PartFile
from flatout.probe.core.probe_failure import in_one_line
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller
from flatout.probe.recorder import StopRecording
from flatout.schema.order import Order
from flatout.schema.run import End
from flatout.torch_loader.pass_start import drawn_from

__all__ = ["ScriptLoaders", "measure_loaders"]

_BATCHES = 200
_MOST_S, _SHARE = 90.0, 0.8  # for the loaders: at most, and of what is left of the budget
_LOOK_S = 0.2


class ScriptLoaders:
    """Knows which loaders a script draws from, and measures them when it is about to train."""

    def __init__(self, order: Order) -> None:
        """Take the order; nothing is installed yet."""
        self._order = order
        self._parts = Path(order.folder) / "parts"
        self._made_at: Any = weakref.WeakKeyDictionary()  # loader -> the user's line
        self._walked: Any = weakref.WeakKeyDictionary()  # iterator -> its loader, while its pass is under way
        self._drawn: list[Any] = []  # loaders in the order in which they gave their first training batch
        self._inside = threading.local()  # a loader inside a loader's data set is none of the training's
        self._done = self._measuring = False
        self._process = os.getpid()

    def install(self, seams: Seams) -> None:
        """Watch loaders, and what begins a training step."""
        place = "torch.utils.data.dataloader:"
        seams.wrap(place + "DataLoader.__init__", self._made)
        seams.wrap(place + "DataLoader.__iter__", self._begins)
        seams.wrap("flatout.torch_loader.pass_start:begin_pass", self._begins)
        seams.wrap(place + "_BaseDataLoaderIter.__next__", self._asked)
        seams.wrap("torch.autograd:backward", self._before)
        seams.wrap("torch.autograd:grad", self._before)
        seams.replace(sys, "excepthook", self._without_traceback(sys.excepthook))
        register_optimizer_step_pre_hook(lambda *_: self.measure())

    def measure(self) -> None:
        """Measure the training loaders, write what was found, and end the script.

        Raises:
            StopRecording: all is measured; again whenever a script that has passed over it would go on.
        """
        in_a_sample = self._measuring or getattr(self._inside, "next", False)  # gradients that a data set computes
        if os.getpid() != self._process or not self._drawn or in_a_sample:
            return
        if not self._done:
            self._done = self._measuring = True
            rank, ranks = _place_among_ranks()
            if rank:
                self._wait()
            else:
                self._measure(ranks)
            self._measuring = False
        raise StopRecording

    def _measure(self, ranks: int) -> None:
        under_way = {id(loader) for loader in self._walked.values()}
        loaders = [each for each in self._drawn if id(each) in under_way] or self._drawn[-1:]
        part = PartFile(self._parts / f"loader-rank0-{self._process}.jsonl")
        left_s = self._order.max_s - (time.time() - self._order.launched_unix_s)
        max_s = max(1.0, min(_MOST_S, _SHARE * left_s)) / len(loaders)
        notes = [f"measured on rank 0, while the other {ranks - 1} loaded nothing"] if ranks > 1 else []
        for loader in loaders:
            try:
                at = self._made_at.get(loader)
                figures = measured(loader, _BATCHES, max_s, created_at=at)
                part.put("loader_figures", figures)
            except Exception as error:
                notes.append(f"the loader of {type(loader.dataset).__name__} failed: {in_one_line(error)}")
        part.put_many("notes", notes)
        part.put("end", End(reason="steps", at_ns=time.perf_counter_ns()))
        part.close()

    def _wait(self) -> None:
        """Wait on another rank until rank 0 has measured: launchers end all ranks when one of them ends."""
        until = time.monotonic() + self._order.max_s
        while time.monotonic() < until and not _has_ended(self._parts):
            time.sleep(_LOOK_S)

    def _made(self, original: Callable[..., Any], _hits: Hits) -> Callable[..., Any]:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            with contextlib.suppress(TypeError):  # a class of loaders that cannot be a key
                self._made_at[loader] = caller(2)

        return init

    def _begins(self, original: Callable[..., Any], _hits: Hits) -> Callable[..., Any]:
        def iterate(loader: Any) -> Any:
            iterator = original(loader)
            if not self._done:
                with contextlib.suppress(TypeError):
                    self._walked[drawn_from(iterator)] = loader
            return iterator

        return iterate

    def _asked(self, original: Callable[..., Any], _hits: Hits) -> Callable[..., Any]:
        def following(iterator: Any) -> Any:
            if self._done or getattr(self._inside, "next", False):
                return original(iterator)
            self._inside.next = True
            try:
                batch = original(iterator)
            except StopIteration:
                self._walked.pop(iterator, None)
                raise
            finally:
                self._inside.next = False
            loader = self._walked.get(iterator)
            if loader is not None and torch.is_grad_enabled() and not any(loader is each for each in self._drawn):
                self._drawn.append(loader)
            return batch

        return following

    def _before(self, original: Callable[..., Any], _hits: Hits) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.measure()
            return original(*args, **kwargs)

        return call

    def _without_traceback(self, before: Callable[..., None]) -> Callable[..., None]:
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if not issubclass(kind, StopRecording):
                before(kind, error, trace)

        return excepthook


def measure_loaders(order: Order) -> ScriptLoaders:
    """Watch the loaders of this process as `order` says."""
    watch = ScriptLoaders(order)
    watch.install(Seams())
    return watch


def _place_among_ranks() -> tuple[int, int]:
    """Return this process's rank, and how many there are."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0") or 0), int(os.environ.get("WORLD_SIZE", "1") or 1)


def _has_ended(parts: Path) -> bool:
    return any('"kind":"end"' in path.read_text(encoding="utf-8") for path in parts.glob("loader-rank0-*.jsonl"))
