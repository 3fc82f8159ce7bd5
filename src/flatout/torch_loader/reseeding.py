"""Workers that stay, seeded anew for each pass exactly as new ones would be."""

import random
import sys
from collections.abc import Callable
from typing import Any

from flatout.watch.batch_side_effects import keeps_results
from flatout.watch.dataset_state import holds_generator, random_states, undrawn
from flatout.watch.files.opened_files import FileMark, OpenedFiles, are_as_before, files_held
from flatout.watch.first_use import Attributes
from flatout.watch.memory.object_graph import available
from flatout.watch.state_watch import StateWatch

__all__ = ["Begin", "NotingCollate", "Reseed", "only_seeds"]

# What a function may name that seeds the streams of a worker and does nothing else.
_SEEDING = {"torch", "np", "numpy", "random", "seed", "initial_seed", "manual_seed", "get_worker_info", "id", "int"}
_SEEDING |= {"utils", "data", "worker_info", "default_generator", "set_num_threads"}

_beginnings: list["Begin"] = []
"""In a worker: how it began. Empty in every other process."""


def only_seeds(init: Callable[[int], Any] | None) -> bool:
    """Return whether a `worker_init_fn` does nothing but seed random streams; True for None."""
    code = getattr(init, "__code__", None)
    return init is None or (code is not None and not code.co_freevars and set(code.co_names) <= _SEEDING)


class Begin:
    """How a worker that stays begins: the script's own `worker_init_fn`, and what the data set was like then."""

    def __init__(self, init: Callable[[int], Any] | None, collate: Callable[..., Any]) -> None:
        """Take the script's own functions."""
        self._init, self._collate = init, collate
        self._roots: list[tuple[str, Any]] = []
        self._made_some = self._drew = self._counted = False
        self._attributes: Attributes | None = None
        self._before: Any = None
        self._watch: StateWatch | None = None
        self._ear: OpenedFiles | None = None
        self._set_up: dict[str, FileMark] = {}  # files that were read while the data set set itself up

    def __call__(self, worker_id: int) -> None:
        """Do what the script's own does, and note how the worker begins."""
        if self._init is not None:
            self._init(worker_id)
        self._ear, dataset = OpenedFiles(), _worker().dataset
        self._roots = [(type(dataset).__name__, dataset), ("collate_fn", self._collate)]
        self._watch = StateWatch(self._roots, files="passed") if available() else None
        self._attributes = Attributes(dataset, self._collate)
        self._before = random_states()
        _beginnings[:] = [self]

    def first_batch(self) -> None:
        """Note what the data set is like after its first batch: what is opened then is part of the beginning.

        Not so what is drawn: new workers would draw other numbers. Nor what is counted or replaced: which samples
        stand in the first batch is another thing in each pass.
        """
        if self._made_some or self._watch is None or self._ear is None:
            return
        self._made_some, self._set_up = True, self._ear.taken() | files_held()
        if self._watch.look_deep():
            self._drew = not undrawn(self._before, random_states())
            self._counted = self._attributes is None or not self._attributes.only_opened(self._watch)
            self._watch = StateWatch(self._roots, files="passed")

    def _differs(self) -> str:
        """Return what makes this worker another than a new one, an empty string for nothing."""
        if self._watch is None or self._ear is None:
            return "cannot be told"
        dataset = _worker().dataset
        if self._drew or self._counted or self._watch.look_deep() or holds_generator(dataset):
            return "changed"
        if not are_as_before(self._set_up):
            return "files that it read at first have changed"
        if (self._set_up or self._ear.taken()) and keeps_results(dataset, self._collate):
            return "functions keep what they read"
        return ""

    def again(self, base_seed: int) -> str:
        """Begin as a new worker would with that seed; return what makes this one differ from a new one."""
        torch, numpy, info = sys.modules["torch"], sys.modules.get("numpy"), _worker()
        differs = self._differs()
        if differs:
            return differs
        seed = base_seed + info.id
        random.seed(seed)
        torch.manual_seed(seed)
        if numpy is not None:
            numpy.random.seed(torch.utils.data._utils.worker._generate_state(base_seed, info.id))
        object.__setattr__(info, "seed", seed)  # past WorkerInfo's own __setattr__, which locks it
        if self._init is not None:
            self._init(info.id)
        return ""


class NotingCollate:
    """The script's collate function, which tells of the first batch."""

    def __init__(self, collate: Callable[..., Any], begin: Begin) -> None:
        """Take the script's own function, and whom to tell."""
        self._collate = collate
        self._begin = begin

    def __call__(self, samples: Any) -> Any:
        """Return the batch of `samples`."""
        batch = self._collate(samples)
        self._begin.first_batch()
        return batch


class Reseed:
    """What is sent to a worker in place of a shared seed: unpickling it there seeds the worker's streams.

    It travels inside the message with which torch resumes a worker, so it arrives between two passes. What comes back
    with the worker's answer is an empty string, or why the worker is not as a new one would be.
    """

    def __init__(self, base_seed: int) -> None:
        """Take the seed that the loader has drawn for this pass."""
        self._base_seed = base_seed

    def __reduce__(self) -> tuple[Callable[[int], str], tuple[int]]:
        return _reseed, (self._base_seed,)


def _reseed(base_seed: int) -> str:
    try:
        return _beginnings[0].again(base_seed) if _beginnings else "not begun"
    except Exception as error:  # raised here it would end the worker
        return f"{type(error).__name__}: {error}"


def _worker() -> Any:
    return sys.modules["torch"].utils.data.get_worker_info()
