"""The batches of one data set on all ranks: made by shares where that was found to be right and to pay, else by each.

All ranks ask for the same batches in the same order. Whatever decides is exchanged first, so that all decide alike.
"""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

import torch

from flatout.ranks.account import InputAccount
from flatout.ranks.group import RankGroup
from flatout.ranks.input import division_trial
from flatout.ranks.input.content_digest import content_digest, digest_of_bytes
from flatout.ranks.input.sample_maker import SampleMaker
from flatout.ranks.input.share_exchange import Against, Asked, SharedBatch, ShareExchange, change_in
from flatout.torch_loader.predicted.backoff import Backoff
from flatout.torch_loader.predicted.random_streams import StreamSet, WordCounts
from flatout.units import format_ms
from flatout.watch.dataset_state import drawn_on_device, parts, random_states, same
from flatout.watch.freshness import Freshness

__all__ = ["LoaderDivision"]

_WORTH_S = 2e-3  # a batch that is made sooner costs more to hand over
_BYTES_PER_S = 1e9  # into shared memory and out of it
_FEWEST = 6  # batches of a pass: a shorter one ends before anything is gained, so the first so many are left
_SETTLING = 3  # batches after which a data set has set itself up
_CHANGES, _BETWEEN = 4, 16  # by the script: so many, and one more for every so many batches that were divided

_VARIES = "draws another number of random values for each sample"
_ELSEWHERE = "is read in another state of the random streams by each rank"
_SLOW = "took longer to hand over than to make"


class _Found(NamedTuple):
    """What batches are shared by; it does not hold the data set."""

    streams: StreamSet
    words: WordCounts
    fresh: Freshness


class LoaderDivision:
    """What is known of one data set, and of what its samples do.

    Attributes:
        reason: why every rank makes all of its batches, "" while that is not so.
    """

    def __init__(
        self, group: RankGroup, exchange: ShareExchange, own: Sequence[Any], stop: Callable[[str], NoReturn]
    ) -> None:
        """Know nothing yet; `own`: as in `followed`."""
        self.reason = ""
        self._group, self._exchange, self._account = group, exchange, InputAccount("", "")
        self._own, self._stop = own, stop
        self._backoff = Backoff()
        self._found: _Found | None = None
        self._make: Callable[[SampleMaker, Sequence[Any]], Any] = self._first
        self._here_s = self._before_s = 0.0
        self._counts: Counter[str] = Counter()

    def asks(self, account: InputAccount, num_batches: int | None) -> bool:
        """Return whether ranks do something together for the next batch, which goes to `account`; the same on all.

        `num_batches`: of a pass, None where the loader has no length.
        """
        self._account = account
        if num_batches is not None and num_batches < _FEWEST and self._counts["asked"] < _FEWEST:
            self._counts["asked"] += 1
            account.hint = (
                account.hint or f"has {num_batches} batches a pass, too few to try anything in the first ones"
            )
            return False
        if self._backoff.rests():
            account.hint = account.hint or _SLOW
            self._counts["rested"] = 1
            return False
        account.reason = self.reason or account.reason
        return not self.reason

    def batch(self, maker: SampleMaker, index: Sequence[Any]) -> Any:
        """Return the batch of an index; every rank calls this for its own, which should be the same one."""
        own = _named(index)
        told = self._group.everywhere(torch.tensor([digest_of_bytes(own.encode())], device="cpu"))
        if bool((told != told[0]).any()):
            self._leave("is asked for other samples by each rank")
            return maker.whole(index)
        if self._counts.pop("rested", 0) and self._found is not None:
            samples, took = _timed(maker, index)
            self._here_s = self._mean(took)
            return maker.batch(samples)
        return self._make(maker, index)

    # -- stages -------------------------------------------------------------------------------------------------

    def _first(self, maker: SampleMaker, index: Sequence[Any]) -> Any:
        """Make a batch on every rank, and decide by what that takes whether to go on."""
        before = random_states()
        samples, took = _timed(maker, index)
        why = division_trial.looks_bad(maker.dataset) or division_trial.not_samples(samples, len(index))
        if drawn_on_device(before, random_states()):
            why = "draws random numbers on a device"
        self._here_s = self._mean(took)
        self._agreed(why or self._not_worth(samples))
        self._make = self._tried
        return maker.batch(samples)

    def _tried(self, maker: SampleMaker, index: Sequence[Any]) -> Any:
        """Make a batch on every rank, then once more by shares, and compare."""
        fresh, streams, why = division_trial.followed(maker.dataset, self._own)
        if not self._agreed(why) or fresh is None:
            return maker.whole(index)
        now = streams.read()
        samples, took = _timed(maker, index)
        end = streams.read()
        changed = self._anywhere(change_in(fresh))
        if changed:
            self._counts["settling"] += 1
            if self._counts["settling"] >= _SETTLING:
                self._leave(f"changes while it is read: {changed}")
            return maker.batch(samples)
        self._here_s = min(self._here_s, self._mean(took))
        words = streams.words(now, end)
        varies = words is None or any(count % len(index) for count in words)
        why = _VARIES if varies else self._not_worth(samples)
        if not why and self._group.rank == 0:
            streams.write(now)
            why = division_trial.rehearsed(maker, index, self._group.size, fresh, streams)
            streams.write(end)
        if self._agreed(why) and words is not None:
            self._found = _Found(streams, tuple(count // len(index) for count in words), fresh)
            self._compare(Asked(maker, index, *self._found), samples, now, end)
        return maker.batch(samples)

    def _compare(self, asked: Asked, samples: list[Any], now: Any, end: Any) -> None:
        """Make a batch by shares that was made already; where it is the same one, go on like that."""
        asked.streams.write(now)
        found = self._exchange.made(asked, now)
        asked.streams.write(end)
        if found.against:
            self._refuse(asked, found)
            return
        why = ""
        if not same(samples, found.samples) or [one.mark for one in end] != [one.mark for one in found.end]:
            why = "gives other samples in another rank"
        elif not asked.maker.copies and division_trial.shared_memory(samples, found.samples):
            why = "hands out what it holds, to a collate function of the script's own"
        if self._agreed(why):
            self._make = self._shared

    def _shared(self, maker: SampleMaker, index: Sequence[Any]) -> Any:
        """Make a batch by shares."""
        assert self._found is not None
        asked = Asked(maker, index, *self._found, before_s=self._before_s)
        now = asked.streams.read()
        found = self._exchange.made(asked, now)
        if found.samples is None:
            return self._instead(asked, found)
        asked.streams.write(found.end, now)
        self._account.shared += len(index)
        self._account.own += found.own
        self._account.divided += 1
        self._counts["divided"] += 1
        self._backoff.hit(found.before_s, self._here_s)
        self._before_s = found.took_s
        return maker.batch(found.samples)

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def _instead(self, asked: Asked, found: SharedBatch) -> Any:
        """Make a batch on every rank that could not be made by shares."""
        if found.against is Against.APART:
            self._backoff.missed()
            self._account.hint = _VARIES
            return asked.maker.whole(asked.indices)
        why = self._anywhere(found.why)
        batch = asked.maker.whole(asked.indices)
        if found.against & Against.CHANGED:
            self._changed_by_reading(asked, found, why)
        elif found.against & Against.ELSEWHERE:
            self._leave(_ELSEWHERE)
        elif all(one is Against.CHANGED_BEFORE for one in found.each):
            self._changed_by_script(why)
        elif found.against & Against.CHANGED_BEFORE:
            self._make_sure(asked.maker, why)
            self._changed_by_script(why)
        elif found.against & Against.FAILED:  # and whole it did not
            self._leave(f"cannot be read by shares: {why}")
        else:
            self._backoff.missed()
            self._account.hint = "prints while it is read"
        return batch

    def _refuse(self, asked: Asked, found: SharedBatch) -> None:
        """Leave a data set to every rank that could not be read by shares when that was tried."""
        why = self._anywhere(found.why)
        if found.against & Against.CHANGED:
            self._changed_by_reading(asked, found, why)
        elif found.against & Against.ELSEWHERE:
            self._leave(_ELSEWHERE)
        else:
            self._leave(_VARIES if found.against is Against.APART else why or "prints while it is read")

    def _changed_by_reading(self, asked: Asked, found: SharedBatch, what: str) -> None:
        """Leave a data set to every rank that has changed while a share was read: what that did was put back."""
        self._leave(f"changes while it is read: {what}")
        if found.against & Against.LEFT:
            untouched = any(not one & Against.CHANGED for one in found.each)
            self._make_sure(asked.maker if untouched else None, what)

    def _changed_by_script(self, what: str) -> None:
        """Find out anew what is known of a data set that the script has changed on all ranks."""
        self._counts["changes"] += 1
        self._counts["settling"] = 0
        self._make, self._found = self._tried, None
        if self._counts["changes"] > _CHANGES + self._counts["divided"] // _BETWEEN:
            self._leave(f"is changed by the script again and again: {what}")

    def _make_sure(self, maker: SampleMaker | None, what: str) -> None:
        """Stop the training unless all ranks have the data set of one that was not changed; None: there is none."""
        digest = None if maker is None else content_digest(maker.dataset)
        told = torch.tensor([digest or 0, int(digest is not None)], device="cpu")
        everywhere = self._group.everywhere(told)
        if digest is None or bool((everywhere != told).any()):
            self._stop(
                f"{self._account.name} changes while it is read, and not alike on all ranks, by which its samples were"
                f" made: {what}; with workers (num_workers) it is read by them alone"
            )

    # -- that all decide alike ----------------------------------------------------------------------------------

    def _anywhere(self, why: str) -> str:
        """Return what the first rank says that says anything."""
        return next(filter(None, self._group.texts(why)), "")

    def _agreed(self, why: str) -> bool:
        """Return whether no rank has anything against it; else this data set is left to every rank."""
        against = self._anywhere(why)
        if against:
            self._leave(against)
        return not against

    def _leave(self, why: str) -> None:
        self.reason = self._account.reason = why
        self._found = None

    def _mean(self, seconds: float) -> float:
        return float(self._group.everywhere(torch.tensor([seconds], dtype=torch.float64, device="cpu")).mean())

    def _not_worth(self, samples: Any) -> str:
        """Return why shares of such a batch would gain nothing; "" where they may."""
        saved = self._here_s * (1 - 1 / self._group.size)
        if self._here_s > _WORTH_S and saved > _num_bytes(samples) / _BYTES_PER_S:
            return ""
        return f"makes a batch in {format_ms(self._here_s * 1e3)}, less than handing it over is worth"


def _named(index: Sequence[Any]) -> str:
    """Return what tells a batch of indices from another one, the same words for the same numbers in all ranks."""
    try:
        return repr([*map(operator.index, index)])
    except TypeError:  # keys of another kind: text says what it is, of objects only their number is the same
        return repr([one if isinstance(one, str | bytes) else "" for one in index])


def _timed(maker: SampleMaker, index: Sequence[Any]) -> tuple[Any, float]:
    """Return the samples of a batch, and how many seconds they took."""
    begin = perf_counter()
    samples = maker.samples(index)
    return samples, perf_counter() - begin


def _num_bytes(samples: Any) -> int:
    """Return the size of a batch's samples, by the first of them."""
    return sum(int(part.nbytes) for part in parts(samples[:1]) if hasattr(part, "nbytes")) * len(samples)
