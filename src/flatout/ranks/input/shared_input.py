"""Loaders without workers, whose batches all ranks ask for: which of them are divided, and what is known of each."""

import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NoReturn

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import caller_line
from flatout.ranks.account import InputAccount, RankAccount
from flatout.ranks.group import RankGroup, Together
from flatout.ranks.input.content_digest import digest_of_bytes
from flatout.ranks.input.loader_division import LoaderDivision
from flatout.ranks.input.quiet_making import QuietMaking
from flatout.ranks.input.sample_maker import SampleMaker
from flatout.ranks.input.share_exchange import ShareExchange
from flatout.ranks.local_rows import HERE

__all__ = ["SharedInput"]

_MAP = 0  # torch's number of data sets that are asked by index


class SharedInput:
    """The seam at torch's iterator without workers."""

    def __init__(
        self,
        group: RankGroup,
        account: RankAccount,
        stop: Callable[[str], NoReturn],
        *,
        off: Callable[[], str] = str,
        generators: Sequence[Any] = (),
    ) -> None:
        """Know no loader; `off()`: why ranks do nothing together any more; `generators`: of flatout's own."""
        self._group, self._account, self._stop = group, account, stop
        self._off, self._generators = off, generators
        self._known: dict[tuple[int, bool], tuple[weakref.ref[Any], LoaderDivision]] = {}
        self._exchange: ShareExchange | None = None
        self._batches = 0

    def install(self, seams: Seams) -> None:
        """Take every iterator that makes its batches in this process."""
        self._exchange = ShareExchange(self._group, QuietMaking(seams))

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def init(iterator: Any, loader: Any) -> None:
                original(iterator, loader)
                self._account.count("alone")
                if not (get_ident() != HERE.main or HERE.inside or self._off()):
                    hits.count += 1
                    self._begin(iterator, loader)

            return init

        seams.wrap("torch.utils.data.dataloader:_SingleProcessDataLoaderIter.__init__", make)

    def _begin(self, iterator: Any, loader: Any) -> None:
        """Have an iterator ask here for its batches."""
        account = self._account.input(type(loader.dataset).__name__, caller_line())
        if getattr(iterator, "_dataset_kind", None) != _MAP:
            account.reason = account.reason or "is an iterable data set"
        elif loader.batch_sampler is None:
            account.reason = account.reason or "gives its batches itself (batch_size=None)"
        else:
            iterator._dataset_fetcher = _SharedFetcher(self, iterator._dataset_fetcher, account, _length(loader))

    # -- one batch ----------------------------------------------------------------------------------------------

    def batch(self, maker: SampleMaker, index: Any, account: InputAccount, num_batches: int | None) -> Any:
        """Return a batch that the script asks for; `num_batches`: of a pass, None for a loader without a length."""
        count = maker.count(index)
        account.batches += 1
        account.samples += count
        if get_ident() != HERE.main:
            account.hint = account.hint or "is read by another thread"
            return maker.whole(index)
        if HERE.inside or self._off() or count < self._group.size:
            return maker.whole(index)
        division = self._division(maker)
        if division is None:
            account.reason = f"is a {account.name}"
        if division is None or not division.asks(account, num_batches):
            return maker.whole(index)
        self._meet(account, index)
        return division.batch(maker, index)

    def _meet(self, account: InputAccount, index: Sequence[Any]) -> None:
        """Make sure that all ranks are at a batch of such a data set."""
        self._batches += 1
        self._group.place = lambda: f"batch {account.batches:,} of {account.name}, {len(index)} samples"
        self._group.meet(Together.INPUT, digest_of_bytes(account.name.encode()), always=True)

    def _division(self, maker: SampleMaker) -> LoaderDivision | None:
        """Return what is known of a data set; a loader that copies no samples into batches is another matter."""
        key = id(maker.dataset), maker.copies
        ref, division = self._known.get(key, (None, None))
        if ref is not None and ref() is maker.dataset:
            return division
        assert self._exchange is not None
        known = self._known
        try:
            ref = weakref.ref(maker.dataset, lambda gone: known.pop(key, None))
        except TypeError:
            return None
        division = LoaderDivision(self._group, self._exchange, self._generators, self._stop)
        known[key] = ref, division
        return division


class _SharedFetcher:
    """Takes the place of torch's fetcher of one iterator."""

    def __init__(self, shared: SharedInput, fetcher: Any, account: InputAccount, num_batches: int | None) -> None:
        self._shared, self._account, self._num_batches = shared, account, num_batches
        self._maker = SampleMaker(fetcher)
        self._fetcher = fetcher

    def fetch(self, index: Any) -> Any:
        """Return the batch of an index."""
        return self._shared.batch(self._maker, index, self._account, self._num_batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # a sampler of the script's own may have none
        return None
