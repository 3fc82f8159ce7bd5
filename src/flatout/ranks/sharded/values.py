"""The values of sharded parameters: put together on all ranks before something needs them, and let go after it.

Whether a parameter is put together is decided alike on all ranks. What one of them may know alone (that a view of it is
still there, since the garbage collector has not come by) decides only what that rank keeps.
"""

import contextlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Parameter

from flatout.ranks.group import RankGroup, Together
from flatout.ranks.sharded.live_shards import LiveShards
from flatout.ranks.sharded.notes import Notes
from flatout.ranks.sharded.resting import as_it_is, resting_in, without_transforms
from flatout.ranks.sharded.shard import Place, Shard, absent, is_dense

__all__ = ["SharedValues", "kinds", "ordinary"]

_LEAST_VALUES = 1024  # of a parameter: a smaller one stays whole on every rank
_MOST_BYTES = 32 << 20  # put together in one exchange
_LEAST_ROOM = 4 << 20  # bytes that may be whole at a time because somebody has touched them


@contextlib.contextmanager
def ordinary() -> Iterator[None]:
    """Have tensors made here be such that autograd takes them, and no graph is made, in whatever mode the script is."""
    with without_transforms(), torch.inference_mode(False), torch.no_grad():
        yield


def kinds(shards: Iterable[Shard], most_bytes: int = _MOST_BYTES) -> list[list[Shard]]:
    """Return shards of one type and device together, so many that they are exchanged at once."""
    found: dict[Any, list[list[Shard]]] = {}
    sizes: dict[Any, int] = {}
    for one in shards:
        key = (one.part.dtype, one.part.device)
        sizes[key] = sizes.get(key, 0) + one.numel * one.part.element_size()
        if key not in found or sizes[key] > most_bytes:
            found.setdefault(key, []).append([])
            sizes[key] = one.numel * one.part.element_size()
        found[key][-1].append(one)
    return [some for each in found.values() for some in each]


class SharedValues:
    """All parameters of which this rank keeps a share."""

    def __init__(self, group: RankGroup, within: RankGroup) -> None:
        """Know of none; `within`: the ranks that have the shares of one whole."""
        self.group, self.within = group, within
        self.live = LiveShards(Place(within.rank, within.size), lambda one: self._count(one, 0))
        self.notes = Notes()
        self.largest = 0  # bytes that were whole at a time
        self._touched: dict[int, Shard] = {}
        self._whole = 0  # bytes

    # -- which there are ----------------------------------------------------------------------------------------

    def adopt(self, parameters: Sequence[Any]) -> None:
        """Keep shares of those parameters whose values lie alone in memory of their own."""
        fit = [(one, one.untyped_storage().data_ptr()) for one in parameters if _may_be_shared_out(one)]
        there = Counter(storage for _, storage in fit)
        for one, storage in fit:
            if there[storage] == 1:
                shard = self.live.keep(one)
                self._count(shard, _bytes(shard))
                self.release((shard,))

    def copied(self, parameter: Any) -> Any:
        """Return a copy of a resting parameter, of which each rank keeps a share, too."""
        shard = self.live.known(parameter)
        with ordinary(), as_it_is():
            shard.settle()
            made = Parameter(absent(parameter), parameter.requires_grad)
            self.live.keep(made, shard)
        return made

    # -- whole and at rest --------------------------------------------------------------------------------------

    def together(self, shards: Iterable[Shard], *, settled: bool = False) -> None:
        """Put together what is not; every rank does so with the same ones.

        `settled`: shares are newer than what is whole.
        """
        wanted = list(shards)
        needed = [one for one in wanted if not one.fresh]
        if needed:
            with ordinary():
                self.group.meet(Together.VALUES, _told(needed), always=True)
                for one in () if settled else needed:
                    one.settle()
                for some in kinds(needed):
                    self._gather(some)
            self.largest = max(self.largest, self._whole)
        for one in wanted:
            self.notes.whole(one)

    def _gather(self, some: Sequence[Shard]) -> None:
        for one, whole in zip(some, self.wholes(some, [one.part.detach() for one in some]), strict=True):
            self._count(one, _bytes(one))
            one.put(whole)

    def wholes(self, some: Sequence[Shard], parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Yield the whole of each share, its values in a row; all are of one type."""
        own, size = torch.cat(list(parts)), self.within.size
        found = self.within.joined(own, 0, (len(own),) * size).view(size, len(own))
        at = 0
        for one, part in zip(some, parts, strict=True):
            yield found[:, at : at + len(part)].reshape(-1)[: one.numel]
            at += len(part)

    def release(self, shards: Iterable[Shard]) -> None:
        """Let parameters rest that are not in use; inside of a transform of functions, once that is over."""
        if not self.notes.possible:
            self._touched |= {id(one.parameter): one for one in shards}
            return
        with ordinary():
            for one in shards:
                if one.release():
                    self._count(one, 0)

    def touched(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Do an operation on parameters that rest, with the whole of them."""
        shards = {id(one): self.live.known(one) for one in resting_in((args, kwargs))}
        self._make_room(shards)
        self.together(shards.values())
        self._touched |= shards
        for one in shards.values():
            one.show(True)
        try:
            with self.notes.taken():
                return function(*args, **kwargs)
        finally:
            for one in shards.values():
                one.show(one.users > 0)

    def _count(self, shard: Shard, num_bytes: int) -> None:
        """Take down how many bytes of a parameter are whole."""
        self._whole += num_bytes - shard.counted
        shard.counted = num_bytes

    def hold(self, shards: Sequence[Shard]) -> None:
        """Have these whole until the call, the pass or the step that runs is over."""
        self.together(shards)
        self._touched |= {id(one.parameter): one for one in shards}

    def let_go(self) -> None:
        """Let everything rest that was touched, and is not held."""
        if not self.notes.possible:
            return
        self.release(one for one in self._touched.values() if one.ref() is not None)
        self._touched.clear()

    def _make_room(self, wanted: Mapping[int, Shard]) -> None:
        room = max([_LEAST_ROOM, *(2 * sum(_bytes(each) for each in one.block) for one in wanted.values())])
        others = [one for key, one in self._touched.items() if key not in wanted]
        if sum(map(_bytes, (*others, *wanted.values()))) > room and self.notes.possible:
            self.release(one for one in others if one.ref() is not None)
            self._touched.clear()


def _bytes(shard: Shard) -> int:
    return int(shard.numel * shard.part.element_size())


def _told(shards: Iterable[Shard]) -> int:
    """Return a number for what is exchanged: the same on all ranks that do the same."""
    return zlib.crc32(repr([one.shape for one in shards]).encode())


def _may_be_shared_out(parameter: Any) -> bool:
    if type(parameter) is not Parameter or parameter.numel() < _LEAST_VALUES or parameter.is_meta:
        return False
    if parameter.layout is not torch.strided or not (parameter.is_floating_point() or parameter.is_complex()):
        return False
    storage = parameter.untyped_storage()
    own = parameter.is_leaf and not storage.is_shared() and is_dense(parameter)
    return own and storage.nbytes() == parameter.numel() * parameter.element_size()
