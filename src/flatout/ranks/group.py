"""The ranks of one training, as they exchange tensors: a process group of flatout's own, beside any of the script's.

While ranks are still compared, each exchange is preceded by a few bytes that say which one it is. Ranks that follow
different control flow are then seen before they mix up each other's tensors.
"""

import os
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NoReturn

import torch

from flatout.ranks.shared_exchange import SharedExchange, open_shared

__all__ = ["PeerFailed", "RankGroup", "RankMeeting", "Together", "join", "join_machine"]

_LONGEST_WAIT = timedelta(minutes=30)  # for a rank that saves, or validates what is not cut
_COMPARED = 2000  # exchanges
_TEXT_BYTES = 400
_LARGEST = 1 << 62

_Tensor = torch.Tensor


class Together(IntEnum):
    """What ranks do together."""

    CALL = 1
    ROWS = 2
    STATISTICS = 3
    GRADIENTS = 4
    RESULT = 5
    DONE = 6
    FAILED = 7
    INPUT = 8
    VALUES = 9
    PATH = 10


class PeerFailed(Exception):
    """Another rank could not go on with a call that is tried on copies, or does something else in it."""


class RankMeeting:
    """Ranks that make sure that all of them do the same."""

    def __init__(
        self, group: Any, rank: int, size: int, *, on_device: bool = False, shared: SharedExchange | None = None
    ) -> None:
        """Take a process group of torch's; `on_device`: it exchanges tensors of devices as they are.

        `shared`: memory in place of it, for tensors that lie in memory.
        """
        self.rank, self.size = rank, size
        self.tried = False  # what runs is a trial on copies: a rank that fails in it fails alone
        self._lost: Callable[[Exception], NoReturn] = _raise
        self.parted: Callable[[Sequence[str]], NoReturn] = _no_meeting
        self.place: Callable[[], str] = str  # what this rank is about to do, in words
        self.num_bytes = 0
        self._group = group
        self._on_device = on_device
        self._shared = shared
        self._compared = 0
        self.waits = False  # for other ranks, in an exchange or because one has gone

    def when_lost(self, act: Callable[[Exception], NoReturn]) -> None:
        """Call `act` when another rank has gone."""
        self._lost = act
        if self._shared is not None:
            self._shared.lost = act

    @property
    def shares_memory(self) -> bool:
        """Whether all ranks are on one machine, and exchange through its memory."""
        return self._shared is not None

    @property
    def compares(self) -> bool:
        """Whether every exchange is preceded by a comparison."""
        return self._compared < _COMPARED

    def meet(self, exchange: Together, detail: int = 0, *, always: bool = False) -> None:
        """Make sure that every rank is at the same exchange, with the same detail, as long as ranks are compared."""
        if not (self.tried or always or self.compares):
            return
        self._compared += not self.tried
        told = torch.tensor([int(exchange), detail % _LARGEST])
        everywhere = self._gathered(told).view(self.size, 2)
        if bool((everywhere == told).all()):
            return
        if self.tried:
            raise PeerFailed
        self.parted(self.texts(self.place()))

    def numbers(self, exchange: Together, number: int, kind: int) -> tuple[list[int], bool]:
        """Return a number of each rank, and whether all are of one `kind`, in an exchange that is compared always."""
        self._compared += 1
        told = torch.tensor([int(exchange) << 32 | kind, number])
        everywhere = self._gathered(told).view(self.size, 2)
        kinds = everywhere[:, 0].tolist()
        if any(one >> 32 != exchange for one in kinds):
            self.parted(self.texts(self.place()))
        return everywhere[:, 1].tolist(), len(set(kinds)) == 1

    def texts(self, text: str) -> list[str]:
        """Return what each rank says."""
        said = text.encode(errors="replace")[:_TEXT_BYTES]
        own = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
        own[: len(said)] = torch.tensor(list(said), dtype=torch.uint8)
        everywhere = self._gathered(own).view(self.size, _TEXT_BYTES)
        return [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in everywhere]

    def _gathered(self, own: _Tensor) -> _Tensor:
        found = own.new_empty(self.size * own.numel())
        self._gather(own.reshape(-1), found)
        return found

    def _gather(self, own: _Tensor, found: _Tensor) -> None:
        """Fill `found` with what every rank has: with its bytes, since not all types of numbers can be exchanged."""
        self.num_bytes += found.numel() * found.element_size()
        sent, filled = own.view(torch.uint8), found.view(torch.uint8)
        if self._shared is not None and not own.is_cuda:
            self._shared.gather(sent, filled)
            return
        if not own.is_cuda or self._on_device:
            self._wait(lambda: self._group.allgather([list(filled.view(self.size, -1).unbind())], [sent]))
            return
        staged = torch.empty_like(filled, device="cpu")
        self._wait(lambda: self._group.allgather([list(staged.view(self.size, -1).unbind())], [sent.cpu()]))
        filled.copy_(staged)

    def _wait(self, begin: Callable[[], Any]) -> None:
        self.waits = True
        try:
            begin().wait()
        except RuntimeError as error:  # a rank has gone
            self._lost(error)
        finally:
            self.waits = False


class RankGroup(RankMeeting):
    """Exchanges among all ranks; every rank calls the same ones in the same order."""

    def joined(self, part: _Tensor, dim: int, sizes: Sequence[int]) -> _Tensor:
        """Return the parts of all ranks, of `sizes` along `dim`, as one tensor of its own."""
        last = part.dim() == 4 and part.is_contiguous(memory_format=torch.channels_last) and not part.is_contiguous()
        shape = f"{part.dtype} {part.shape[:dim]} {part.shape[dim + 1 :]} {tuple(sizes)} {last}"
        self.meet(Together.ROWS, zlib.crc32(shape.encode()))
        order = (0, 2, 3, 1) if last and dim == 0 else (dim, *(at for at in range(part.dim()) if at != dim))
        moved = part.detach().permute(order).contiguous()
        pieces = self._pieces(moved, sizes)
        if order == tuple(range(part.dim())):
            return pieces if isinstance(pieces, torch.Tensor) else torch.cat(pieces)
        whole = pieces if isinstance(pieces, torch.Tensor) else torch.cat(pieces)
        back = sorted(range(part.dim()), key=order.__getitem__)
        return whole.permute(back).clone(memory_format=torch.preserve_format)

    def _pieces(self, own: _Tensor, sizes: Sequence[int]) -> _Tensor | list[_Tensor]:
        """Return what each rank has, of `sizes` along the first dimension: in one tensor where all are equal."""
        rest, longest = own.shape[1:], max(sizes)
        sent = own if len(own) == longest else torch.cat([own, own.new_zeros(longest - len(own), *rest)])
        found = own.new_empty(self.size * longest, *rest)
        self._gather(sent.reshape(-1), found.view(-1))
        if len(set(sizes)) == 1:
            return found
        return [found[at * longest : at * longest + one] for at, one in enumerate(sizes)]

    def everywhere(self, own: _Tensor) -> _Tensor:
        """Return a small tensor of each rank, stacked."""
        self.meet(Together.STATISTICS, own.numel())
        return self._gathered(own.contiguous()).view(self.size, *own.shape)

    def average(self, flat: _Tensor) -> None:
        """Put the mean over all ranks in the place of a tensor, the same bits on each of them."""
        self.meet(Together.GRADIENTS, flat.numel())
        self._summed(flat)
        flat /= self.size

    def average_each(self, parts: Sequence[_Tensor]) -> None:
        """Average tensors of one type and device, each of one dimension, none of which shares memory with another."""
        number = sum(part.numel() for part in parts)
        if self._shared is not None and not parts[0].is_cuda:
            self.meet(Together.GRADIENTS, number)
            self.num_bytes += number * parts[0].element_size()
            self._shared.mean(parts)
            return
        flat = torch.cat(list(parts))
        self.average(flat)
        for part, mean in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            part.copy_(mean)

    def hand_on(self, flat: _Tensor) -> None:
        """Put what rank 0 has in the place of a tensor of one dimension, on every rank of this machine."""
        self.meet(Together.VALUES, flat.numel())
        assert self._shared is not None
        self.num_bytes += flat.numel() * flat.element_size()
        self._shared.hand_on(flat.view(torch.uint8))

    def _summed(self, flat: _Tensor) -> None:
        self.num_bytes += flat.numel() * flat.element_size()
        if self._shared is not None and not flat.is_cuda:
            self._shared.total(flat)
            return
        if not flat.is_cuda or self._on_device:
            self._wait(lambda: self._group.allreduce([flat]))
            return
        staged = flat.cpu()
        self._wait(lambda: self._group.allreduce([staged]))
        flat.copy_(staged)


def join(rank: int, size: int) -> tuple[RankGroup, Any]:
    """Return the group of all ranks that torch's launcher has started, and the store that they share."""
    distributed: Any = torch.distributed  # whose names have no types
    found, _, _ = next(distributed.rendezvous("env://", timeout=_LONGEST_WAIT))
    store = distributed.PrefixStore("flatout", found)
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
    return _joined(store, rank, size, one_machine), store


def join_machine(group: RankGroup, store: Any) -> RankGroup:
    """Return the group of the ranks of this machine, of all ranks and the store that they share."""
    rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if size == group.size:
        return group
    distributed: Any = torch.distributed
    machine = distributed.PrefixStore(f"machine-{os.environ['GROUP_RANK']}", store)
    return _joined(machine, rank, size, True)


def _joined(store: Any, rank: int, size: int, one_machine: bool) -> RankGroup:
    distributed: Any = torch.distributed
    group = distributed.ProcessGroup(store, rank, size)
    kinds = distributed.ProcessGroup.BackendType
    group._set_default_backend(kinds.GLOO)
    gloo = distributed.ProcessGroupGloo(store, rank, size, _LONGEST_WAIT)
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    on_device = torch.cuda.is_available() and _has_own_device() and distributed.is_nccl_available()
    if on_device:
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = _LONGEST_WAIT
        nccl = distributed.ProcessGroupNCCL(distributed.PrefixStore("nccl", store), rank, size, options)
        group._register_backend(torch.device("cuda"), kinds.NCCL, nccl)
    shared = open_shared(store, rank, size) if one_machine else None
    return RankGroup(group, rank, size, on_device=on_device, shared=shared)


def _has_own_device() -> bool:
    """Return whether the devices that this process sees are no other rank's."""
    return os.environ.get("FLATOUT_OWN_DEVICE") == "1"


def _raise(error: Exception) -> NoReturn:
    raise error


def _no_meeting(texts: Sequence[str]) -> NoReturn:
    raise RuntimeError("; ".join(texts))
