"""What one function of the script's gives for a sample, kept: for data sets that draw at random around it.

The script's own iterator walks and draws, and the script's own `__getitem__` makes each sample. The function that does
most of the work alike each time is stood in for meanwhile: what it gave for the same arguments is handed out again, as
a copy. Nothing is kept of a call that is given anything but plain values, and nothing any more once one draws a random
number or changes the data set.
"""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatout.pipeline.cache.asked_samples import let_ask
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.inspect.determinism import ask, samples_of, some_indices, weakly
from flatout.pipeline.inspect.repeated_proof import ProofPace
from flatout.pipeline.read.sample_calls import FoundCall, Key, dearest_call, key_of, standing_in
from flatout.pipeline.read.sample_copies import copied, size_of
from flatout.pipeline.read.sample_reader import behind
from flatout.units import format_bytes
from flatout.watch.dataset_state import random_states, restore_random_states, same, undrawn
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.freshness import Freshness
from flatout.watch.main_thread import off_main_thread
from flatout.watch.own_generators import generators_in, restore_states, states_of
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = ["CallCache"]

_TRIED = 4
_REHEARSED, _REHEARSED_S = 256, 1.0  # samples that a trial's memory is filled with, and the time for that


@dataclass(frozen=True)
class _Kept:
    """A result, and what the call was given."""

    args: tuple[Any, ...]  # without the data set
    kwargs: dict[str, Any]
    result: Any


class _Results(dict[Key, _Kept]):
    """What is kept, with the bytes that it takes and may take, and the calls that were made for the batch under way."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = self.limit = self.num_new = 0

    def add(self, key: Key, kept: _Kept) -> None:
        self[key] = kept
        self.num_bytes += size_of(kept.result)


class CallCache:
    """Stands for a data set in iterators of the script's own; `reason` says why no more is kept."""

    def __init__(self, loader: Any, hit: Callable[[], None], repeats: bool = False) -> None:
        """Keep nothing yet; `hit` as in `LoaderCaches`.

        `repeats`: once some are kept, samples made of them stand for others, in trials whose results are thrown away.
        """
        self.reason = ""
        self.fresh: Freshness | None = None
        self.num_served = 0
        self._ref, self._hit = weakly(loader), hit
        self._pace = ProofPace()
        self._found: FoundCall | None = None
        self._inner: Callable[[], Any] = lambda: None
        self._kept = _Results()
        self._repeats, self._complete = repeats, list[int]()  # samples whose calls are kept
        self._own = generators_in(loader.dataset)

    @property
    def _dataset(self) -> Any:
        return self._ref()

    @property
    def label(self) -> str:
        """The name of the function, "" where none is worth it."""
        return "" if self._found is None else self._found.place.label

    def weakly_left_out(self) -> Callable[[], list[Any]]:
        """Return that nothing of the data set may do as it likes: what is kept may have been made from any of it."""
        return list

    def explain(self) -> str:
        """Return one line on what is kept, or why nothing is."""
        if self.reason or self._found is None:
            return f"left as it is: {self.reason}"
        kept = f"{len(self._kept)} results of {self._found.place.label} kept in {format_bytes(self._kept.num_bytes)}"
        return f"{kept}, the rest of each sample is made anew; {self.num_served} came from there"

    def within(self, budget: MemoryBudget) -> str:
        """Look at some samples; return why nothing is to be kept, an empty string when that is right and pays."""
        dataset = self._dataset
        some = some_indices(len(dataset), _TRIED)
        inner = {id(one): one for one, _ in (behind(dataset, index) for index in some)}
        if len(inner) != 1:
            return "and it is made of several data sets"
        (one,) = inner.values()
        try:
            self._inner = weakref.ref(one)
            with StateGuard(dataset) as untouched:
                self._found = dearest_call(dataset, one, some)
            if self._found is None:
                return "and no function that it calls does much of the work alike each time"
            if untouched.changed:
                return "and it changes while it is read"
            num_bytes = len(dataset) * self._found.calls * (self._found.num_bytes + size_of(()))
            if not budget.take(num_bytes, self):
                name = self._found.place.label
                return f"and results of {name} take {format_bytes(num_bytes)}, more than the memory budget"
            self._kept.limit = num_bytes
            if not (self._agrees(some) and self._agrees(some)):
                return "and samples made of kept results differ"
            self._rehearse(len(dataset))
            return self.reason
        except any_but_signals() as error:  # a stranger's data set
            return f"and {type(error).__name__} is raised where results are kept"

    def prove(self, number: int) -> str:
        """Make some kept calls again; return what speaks against them, or what spoke against going on."""
        known = [] if self.reason else list(self._kept)
        for place in some_indices(len(known), number) if known else []:
            self._prove(known[(place + self.num_served) % len(known)])
        return self.reason

    def walked(self, iterator: Any) -> Any:
        """Let an iterator of the script's own, without workers, ask here; return it."""
        return let_ask(iterator, self.many, self._dataset)

    def many(self, indices: list[int]) -> list[Any]:
        """Return samples as the data set makes them, the function stood in for."""
        dataset = self._dataset
        if self._found is None or self.reason or off_main_thread() or set(map(type, indices)) != {int}:
            return list(samples_of(dataset, indices))
        if self._found.place.standing is not self._found.place.raw:
            self._refuse(f"{self._found.place.label} was replaced by the script")
        if self.reason or (self.fresh is not None and not self.fresh.holds()):
            return list(samples_of(dataset, indices))
        if self._pace.due and self._kept and not (self.fresh is not None and self.fresh.sees_all):
            with self._pace.proving():
                self.prove(1)
        wanted = self._repeated(indices)
        self._kept.num_new = 0
        with standing_in(self._found.place, self._stand_in()):
            made = list(samples_of(dataset, wanted))
        self.num_served += 0 if self._kept.num_new else len(wanted)
        self._hit()
        if self._kept.num_new and self.fresh is not None and not self.fresh.holds(0):
            self._refuse(f"{type(dataset).__name__} changes while it is read: {self.fresh.changed}")
        return made

    def _rehearse(self, length: int) -> None:
        """Fill the memory of a trial with as many samples as can be made in a second."""
        until = time.monotonic() + _REHEARSED_S
        for index in some_indices(length, _REHEARSED) if self._repeats else ():
            if not self._agrees([index]) or time.monotonic() > until:
                return
            self._complete.append(index)

    def _repeated(self, indices: list[int]) -> list[int]:
        if not self._complete:
            return indices
        return [self._complete[index % len(self._complete)] for index in indices]

    # -- a call -------------------------------------------------------------------------------------------------

    def _stand_in(self) -> Callable[..., Any]:
        """Return a plain function, which a class binds as it does the script's own."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

        return call

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call of the function from what is kept, or make it."""
        assert self._found is not None
        place = self._found.place
        if self.reason or off_main_thread() or (place.is_method and not (args and args[0] is self._inner())):
            return place.function(*args, **kwargs)
        key = key_of(place, args, kwargs)
        if key is None:
            return place.function(*args, **kwargs)
        known = self._kept.get(key)
        return self._made(key, args, kwargs) if known is None else copied(known.result)

    def _made(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, and keep what it gives unless it draws."""
        assert self._found is not None
        place = self._found.place
        self._kept.num_new += 1
        before, own = random_states(), states_of(self._own)
        result = place.function(*args, **kwargs)
        if not undrawn(before, random_states()) or own != states_of(self._own):
            self._refuse(f"{place.label} draws random numbers")
        if self.reason or self._kept.num_bytes > self._kept.limit:
            return result
        try:
            kept = copied(result)
        except ValueError as error:
            self._refuse(f"{place.label} returns {error}")
            return result
        self._kept.add(key, _Kept(args[1:] if place.is_method else args, kwargs, kept))
        return result

    def _again(self, known: _Kept) -> Any:
        assert self._found is not None
        place = self._found.place
        given = (self._inner(), *known.args) if place.is_method else known.args
        return place.function(*given, **known.kwargs)

    # -- proof --------------------------------------------------------------------------------------------------

    def _prove(self, key: Key) -> None:
        assert self._found is not None
        known, label = self._kept[key], self._found.place.label
        answer = ask_a_copy(lambda: same(self._again(known), known.result))
        if answer.failed:
            self._refuse(f"{label} could not be called again: {answer.failed}")
        elif not answer.value:
            with StateGuard(self._dataset):  # a copy has one thread
                alike = same(self._again(known), known.result)
            if not alike:
                if self.fresh is not None:
                    self.fresh.too_late(f"what {label} gives", in_this_pass=False)
                self._refuse(f"{label} gives something else than it gave")

    def _agrees(self, indices: list[int]) -> bool:
        """Return whether samples are the data set's own, drawn from the same random state; that is put back."""
        assert self._found is not None
        with StateGuard(self._dataset):
            before, own = random_states(), states_of(self._own)
            plain = ask(self._dataset, indices, put_back=False)
            after, own_after = random_states(), states_of(self._own)
            restore_random_states(before)
            restore_states(self._own, own)
            with standing_in(self._found.place, self._stand_in()):
                made = samples_of(self._dataset, indices)
            alike = same(list(plain), list(made)) and undrawn(after, random_states())
            return alike and own_after == states_of(self._own) and not self.reason

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._kept = _Results()
