"""Samples kept one by one, where batches cannot be: what is random, and the collate function, stay the script's own.

The script's own iterator walks, draws and collates. What it asks the data set for is kept: whole samples, or, where
samples are random, what the data set hands to its transform; that is called on a copy, in the script's order, each
time.
"""

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flatout.pipeline.cache.asked_samples import let_ask
from flatout.pipeline.cache.call_cache import CallCache
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.inspect.determinism import ask, samples_of, some_indices, weakly
from flatout.pipeline.inspect.repeated_proof import ProofPace
from flatout.pipeline.read.batch_reader import AroundBatches
from flatout.pipeline.read.sample_copies import copied, size_of
from flatout.pipeline.read.sample_reader import Entry, Reader, at_once, behind, reader_of
from flatout.units import format_bytes
from flatout.watch.dataset_state import random_states, restore_random_states, same, undrawn
from flatout.watch.forked_copy import ask_a_copy
from flatout.watch.freshness import Freshness
from flatout.watch.main_thread import off_main_thread
from flatout.watch.own_generators import generators_in, restore_states, states_of
from flatout.watch.refused_writes import in_words
from flatout.watch.rehearsal import rehearse
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard, streams_alone

__all__ = ["SampleCache", "kept_samples", "samples_instead"]

_TRIED = 4
_TIMED = 3
_REHEARSED, _REHEARSED_S = 256, 1.0  # samples that a trial's memory is filled with, and the time for that


def kept_samples(
    loader: Any, budget: MemoryBudget, random: str, hit: Callable[[], None], reason: str, purpose: str = "run"
) -> tuple["SampleCache | CallCache | None", str]:
    """Return what keeps the samples of `loader`, whose batches are refused for `reason`, and no reason any more.

    None and the reason where that does not pay: where workers make samples, or where they are had as quickly. `random`:
    why samples, and not only batches, are random. `purpose` and `hit` as in `LoaderCaches`.
    """
    if not reason or loader is None or loader.num_workers:
        return None, reason
    found = SampleCache(loader, bool(random), hit, purpose == "timing")
    why = found.within(budget)
    if not why:
        return found, ""
    calls = CallCache(loader, hit, purpose == "timing") if random else None
    if calls is None or (of_calls := calls.within(budget)):
        return None, ", ".join([reason, why, *([of_calls] if calls is not None and calls.label else [])])
    return calls, ""


def samples_instead(
    loader: Any, budget: MemoryBudget, hit: Callable[[], None], reason: str
) -> tuple["SampleCache | CallCache | None", str]:
    """Return what keeps samples where rows are refused for `reason`; tried in a copy of the process first."""
    if loader is None or loader.num_workers:
        return None, reason
    found = rehearse(loader, lambda: (kept_samples(loader, MemoryBudget(budget.left), "", hit, reason)[1], None))
    if found.reason or found.changes:
        return None, found.reason or reason
    with streams_alone():
        return kept_samples(loader, budget, "", hit, reason)


class _Entries(dict[int, Entry]):
    """What is kept of each sample, by its index, with the bytes that it takes and may take."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = self.limit = 0

    def add(self, made: Mapping[int, Entry]) -> None:
        self.update(made)
        self.num_bytes += sum(map(size_of, made.values()))


class SampleCache:
    """Stands for a data set in iterators of the script's own; `reason` says why no more is kept."""

    def __init__(self, loader: Any, random: bool, hit: Callable[[], None], repeats: bool = False) -> None:
        """Keep nothing yet; `random`: samples are drawn at random by a transform. `hit` as in `LoaderCaches`.

        `repeats`: once some are kept, they stand for others, in trials whose results are thrown away.
        """
        self.reason = ""
        self.fresh: Freshness | None = None
        self._ref, self._random, self._hit, self._repeats = weakly(loader), random, hit, repeats
        self.num_served = 0
        self._pace = ProofPace()
        self._entries = _Entries()
        self._readers: dict[int, Reader] = {}
        self._own, self._at_once = generators_in(loader.dataset), at_once(loader.dataset)

    @property
    def _dataset(self) -> Any:
        return self._ref()

    def weakly_left_out(self) -> Callable[[], list[Any]]:
        """Return `left_out` in a form that does not keep this alive."""
        weak = weakref.WeakMethod(self.left_out)
        return lambda: [] if (method := weak()) is None else method()

    def left_out(self) -> list[Any]:
        """Return the transforms of the data set that are called anew each time; they may do as they like."""
        found = [
            reader.left_out(dataset)
            for reader, dataset, _ in map(self._reader, some_indices(len(self._dataset), _TRIED))
        ]
        return [one for one in found if one is not None]

    def explain(self) -> str:
        """Return one line on what is kept, or why nothing is."""
        if self.reason:
            return f"left as it is: {self.reason}"
        what = "before their random operations" if self._random else "before they are collated"
        kept = f"{len(self._entries)} samples kept in {format_bytes(self._entries.num_bytes)}"
        return f"{kept}, {what}; {self.num_served} came from there"

    def within(self, budget: MemoryBudget) -> str:
        """Look at some samples; return why nothing is to be kept, an empty string when they are as they should be."""
        dataset = self._dataset
        some = some_indices(len(dataset), _TRIED)
        try:
            with StateGuard(dataset) as untouched:
                entries = self._read(some)
                steady = all(reader.steady(inner, place) for reader, inner, place in map(self._reader, some))
            if untouched.drew or (self._random and (untouched.changed or not steady)):
                return "outside of a transform that it holds" if self._random else "samples are drawn at random"
            if not self._saves(some, list(entries.values())):
                return "and its samples are made as quickly as copied"
            num_bytes = len(dataset) * max(size_of(copied(entry)) for entry in entries.values())
            if not budget.take(num_bytes, self):
                return f"and {len(dataset)} samples take {format_bytes(num_bytes)}, more than the memory budget"
            self._entries.limit = num_bytes
            alike = all(self._agrees([index]) for index in some) and self._agrees(some)
            if alike and self._repeats:
                self._rehearse()
            return "" if alike else "and samples read one by one differ"
        except any_but_signals() as error:  # a stranger's data set, given something that it does not expect
            return f"and reading samples one by one {in_words(error)}"

    def _rehearse(self) -> None:
        """Fill the memory of a trial with as many samples as can be read in a second."""
        until = time.monotonic() + _REHEARSED_S
        with StateGuard(self._dataset):
            for index in some_indices(len(self._dataset), _REHEARSED):
                if self._completed([index]) is None or time.monotonic() > until:
                    return

    def prove(self, number: int) -> str:
        """Ask for some kept samples again; return what speaks against them, or what spoke against going on."""
        known = [] if self.reason else list(self._entries)
        for place in some_indices(len(known), number) if known else []:
            self._prove(known[(place + self.num_served) % len(known)])
        return self.reason

    def walked(self, iterator: Any) -> Any:
        """Let an iterator of the script's own, without workers, ask here; return it."""
        return let_ask(iterator, self.many, self._dataset)

    def many(self, indices: list[int]) -> list[Any]:
        """Return samples as the data set gives them, kept from now on if there is room."""
        keyed = set(map(type, indices)) == {int}  # else indices of a sampler of the script's own
        if off_main_thread() or not keyed:
            return list(samples_of(self._dataset, indices))
        if self.fresh is not None and not self.fresh.holds():
            return list(samples_of(self._dataset, indices))
        if self._pace.due and indices[0] in self._entries and not (self.fresh is not None and self.fresh.sees_all):
            with self._pace.proving():
                self._prove(indices[0])
        wanted = self._repeated(indices) if self._repeats and self._entries else indices
        new = self._completed([index for index in wanted if index not in self._entries])
        if self.reason or new is None:
            return list(samples_of(self._dataset, indices))
        self.num_served += len(wanted) - len(new)
        self._hit()
        read = bool(new)
        entries = [new.pop(index) if index in new else copied(self._entries[index]) for index in wanted]
        made = self._finished(wanted, entries)
        if read and self.fresh is not None and not self.fresh.holds(0):
            self._refuse(f"{type(self._dataset).__name__} changes while it is read: {self.fresh.changed}")
        return made

    # -- reading ------------------------------------------------------------------------------------------------

    def _completed(self, missing: list[int]) -> dict[int, Entry] | None:
        """Keep what is missing and return it; None, and the random streams as they stood, where that cannot be."""
        if not missing:
            return {}
        if self.reason or self._entries.num_bytes > self._entries.limit:
            return None
        before, own = random_states(), states_of(self._own)
        try:
            made = self._read(missing)
            kept = {index: copied(entry) for index, entry in made.items()}
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            self._refuse(f"reading samples one by one raised {type(error).__name__}")
        if not undrawn(before, random_states()) or own != states_of(self._own):
            self._refuse("random numbers are drawn while a sample is read")
            restore_random_states(before)
            restore_states(self._own, own)
        if self.reason:
            return None
        self._entries.add(kept)
        return made

    def _finished(self, indices: list[int], entries: list[Entry]) -> list[Any]:
        """Return samples as a loader without workers gets them, of entries that are nobody else's."""
        readers = [self._reader(index) for index in indices]
        if self._at_once and isinstance(readers[0][0], AroundBatches):
            return readers[0][0].finish_many(readers[0][1], entries)
        return [reader.finish(dataset, entry) for (reader, dataset, _), entry in zip(readers, entries, strict=True)]

    def _read(self, indices: list[int]) -> dict[int, Entry]:
        made = {}
        for index in dict.fromkeys(indices):
            reader, dataset, place = self._reader(index)
            made[index] = reader.read(dataset, place)
        return made

    def _repeated(self, indices: list[int]) -> list[int]:
        known = list(self._entries)
        return [known[index % len(known)] for index in indices]

    def _saves(self, some: list[int], entries: list[Entry]) -> bool:
        """Return whether copying samples is quicker than reading them."""
        taken = []
        for _ in range(_TIMED):
            start = time.perf_counter()
            self._read(some)
            middle = time.perf_counter()
            copied(entries)
            taken.append((middle - start, time.perf_counter() - middle))
        return min(read for read, _ in taken) > min(copy for _, copy in taken)

    # -- proof --------------------------------------------------------------------------------------------------

    def _prove(self, index: int) -> None:
        answer = ask_a_copy(lambda: self._agrees([index]))
        if answer.failed:
            self._refuse(f"{type(self._dataset).__name__} could not be read again: {answer.failed}")
        elif not (answer.value or (torch.get_num_threads() > 1 and self._agrees([index]))):  # a copy has one thread
            if self.fresh is not None:
                self.fresh.too_late(f"sample {index}", in_this_pass=False)
            self._refuse(f"sample {index} differs from what it was")

    def _agrees(self, indices: list[int]) -> bool:
        """Return whether samples are the data set's own, drawn from the same random state; that is put back."""
        with StateGuard(self._dataset):
            plain = ask(self._dataset, indices, put_back=False)
            after, own_after = random_states(), states_of(self._own)
        with StateGuard(self._dataset):
            made = self._read([index for index in indices if index not in self._entries])
            entries = [copied(self._entries.get(index) or made[index]) for index in indices]
            alike = same(list(plain), self._finished(indices, entries)) and undrawn(after, random_states())
            return alike and own_after == states_of(self._own)

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._entries.clear()

    def _reader(self, index: int) -> tuple[Reader, Any, int]:
        dataset, place = behind(self._dataset, index)
        known = self._readers.get(id(dataset))
        if known is None:
            known = self._readers[id(dataset)] = reader_of(dataset, place, self._random)
        return known, dataset, place
