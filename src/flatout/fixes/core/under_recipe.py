"""A whole training under a recipe: fixes applied, nothing timed, nothing redirected, no file protected.

Each process in which fixes acted appends lines on what they did to one file in the order's folder: after some steps,
since a process may be killed, and at its end. `engine/train.py` reads that file.
"""

import atexit
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.fixes.core.apply import install_fixes
from flatout.fixes.core.site import Site
from flatout.fixes.trial.alternation import describe
from flatout.schema.order import Order

if TYPE_CHECKING:
    from flatout.probe.core.seams import Hits

__all__ = ["ACTS_FILE", "UnderRecipe", "train_under"]

ACTS_FILE = "acts.jsonl"

_LOOK_AFTER = frozenset((1, 2, 3, 4, 5, 8, 12))  # optimizer steps after which outermost modules are looked for again
_REPORT_AFTER = frozenset((12, 1000))  # optimizer steps after which a process says what was done so far
_NO_TRAINING = ("torch._inductor.compile_worker", "multiprocessing.resource_tracker")
_MOST_DATA_SETS = 50
_RANKS = (("RANK", 0), ("WORLD_SIZE", 1))

_current: "list[UnderRecipe]" = []
"""What holds the fixes of this process, kept here so that it lives as long as the process."""


def train_under(order: Order) -> None:
    """Put the fixes of `order` in place in this process and let the script go on; once in a process."""
    if _current or any(name in word for word in sys.orig_argv for name in _NO_TRAINING):
        return
    training = UnderRecipe(order)
    _current.append(training)
    training.install()


class _Steps:
    """Counts steps of the training: one that makes several optimizers step, each once, is one."""

    def __init__(self) -> None:
        self.calls = self.number = 0
        self.last_unix_s = 0.0
        self.rank, self.world_size = (int(os.environ.get(name, "") or least) for name, least in _RANKS)
        self._stepped: set[int] = set()  # optimizers, in the step under way

    def take(self, optimizer: int) -> None:
        """An optimizer has made a step."""
        if not self.calls and (group := _process_group()) is not None:
            self.rank, self.world_size = group
        self.calls += 1
        self.last_unix_s = time.time()
        if not self._stepped or optimizer in self._stepped:
            self.number += 1
            self._stepped.clear()
        self._stepped.add(optimizer)


class UnderRecipe:
    """The fixes of one process, and what tells them of the modules that are trained."""

    def __init__(self, order: Order) -> None:
        """Prepare; nothing is installed yet."""
        from flatout.probe.core.event_log import EventLog
        from flatout.probe.core.seams import Seams
        from flatout.probe.model.modules import ModuleWatch

        self._order = order
        self._file = Path(order.folder) / ACTS_FILE
        self.seams = Seams()
        event_log = EventLog(_nothing, _nothing)
        event_log.record = deque[Any](maxlen=0).extend  # takes an event and leaves it at that, without any Python
        event_log.now = int  # no time is taken either
        self.modules = ModuleWatch(event_log)
        self.modules.trouble = self._trouble
        self.sites: list[Site] = []
        self._looks_for_modules = False
        self._notes: list[str] = []
        self._optimizers: dict[int, Any] = {}
        self._steps = _Steps()
        self._samples: dict[str, list[int]] = {}
        self._said: tuple[int, list[dict[str, int]]] = (0, [])

    def install(self) -> None:
        """Install the fixes, then, around whatever they installed, what finds the modules and says what was done."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.sites = install_fixes(self._order.fixes, self.seams, self.modules)
        self._looks_for_modules = any(site.outermost.wanted for site in self.sites)
        if self._looks_for_modules:  # else calls of modules stay as they are
            self.modules.install(self.seams)
            self.seams.wrap("torch.optim.optimizer:Optimizer.__init__", self._optimizer_made)
        self.seams.wrap("torch.utils.data.dataloader:DataLoader.__iter__", self._walked)
        self.seams.wrap("os:_exit", self._exit)
        register_optimizer_step_post_hook(self._stepped)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.report)
        if any(site.failure for site in self.sites):
            self.report()

    def report(self) -> None:
        """Append what was done in this process to the file, if there is something that was not said yet."""
        done, failed = [dict(site.hits) for site in self.sites], self._failed()
        told = (self._steps.calls, done + failed)
        if told == self._said or not (self._steps.calls or failed or any(done)):
            return
        body = {
            "pid": os.getpid(),
            "rank": self._steps.rank,
            "world_size": self._steps.world_size,
            "steps": self._steps.number,
            "last_step_unix_s": self._steps.last_unix_s,
            "sites": describe(self.sites),
            "samples": self._samples,
            "notes": self._notes,
            **(_software() if self._steps.calls else {}),
        }
        _append(self._file, json.dumps(body) + "\n")
        self._said = told  # last: what a signal's handler ends here is said at the process's end

    def _failed(self) -> list[dict[str, int]]:
        return [{"failed": 1} for site in self.sites if site.failure]

    # -- what happens in the training ---------------------------------------------------------------------------

    def _optimizer_made(self, original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            hits.count += 1
            self.modules.look(set(_parameters(optimizer)), descend=False)

        return init

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step: at first, look for modules where a fix wants them."""
        self._steps.take(id(optimizer))
        number = self._steps.calls
        if self._looks_for_modules and number <= 12:
            self._optimizers[id(optimizer)] = optimizer
            if number in _LOOK_AFTER:
                self.modules.look({each for one in self._optimizers.values() for each in _parameters(one)})
            if number == 12:
                self._optimizers.clear()
        if number in _REPORT_AFTER:
            self.report()

    def _walked(self, original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
        """Note how large the data are, for they may not be those that the recipe was proven with."""

        def walk(loader: Any) -> Any:
            if hits.count < _MOST_DATA_SETS:
                hits.count += 1
                self._note_size(loader)
            return original(loader)

        return walk

    def _note_size(self, loader: Any) -> None:
        try:
            size = len(loader.dataset)
        except Exception:  # a user's __len__ may raise anything
            return
        sizes = self._samples.setdefault(type(loader.dataset).__name__, [])
        if size not in sizes:
            sizes.append(size)

    def _exit(self, original: Callable[..., Any], hits: "Hits") -> Callable[..., Any]:
        """Forked workers end here, past `atexit`."""

        def leave(status: int) -> None:
            self.report()
            original(status)

        return leave

    def _forked(self) -> None:
        """A forked child counts for itself."""
        for site in self.sites:
            site.hits.clear()
        self._steps = _Steps()
        self._said = (0, [{} for _ in self.sites] + self._failed())

    def _trouble(self, error: Exception) -> None:
        self._notes.append(f"{type(error).__name__}: {error}".splitlines()[0][:300])


def _process_group() -> tuple[int, int] | None:
    """Return rank and number of processes where the script has told them to torch alone, as under `spawn`."""
    import torch

    group = torch.distributed
    return (group.get_rank(), group.get_world_size()) if group.is_available() and group.is_initialized() else None


def _software() -> dict[str, str]:
    try:
        from flatout.probe.core.environment import describe_environment

        found = describe_environment()
    except RuntimeError:  # a device that only the process before the fork may use
        return {}
    return {"python": found.python, "torch": found.torch, "device": found.device}


def _append(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of several processes do not mix."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # whoever wanted to read it has gone
        return
    try:
        os.write(file, line.encode())
    except OSError:
        pass
    finally:
        os.close(file)


def _parameters(optimizer: Any) -> Iterator[int]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield id(parameter)


def _nothing(_: object) -> None:
    """Take a step or a stretch that nobody wants."""
