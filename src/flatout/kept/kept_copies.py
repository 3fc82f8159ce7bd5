"""Tensors that are copied to a device again and again, unchanged: their copies, kept there.

Who asks for a copy gets one of his own, made on the device from the one that was kept. A tensor is known to be as it
was by its version and by the pages of memory that it lies in, so that writes of numpy or of C code are seen, too.
"""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flatout.kept.call_key import unusual_moment
from flatout.kept.reports import Reports
from flatout.torch_loader.batch_copies import asked_device
from flatout.watch.dataset_state import same
from flatout.watch.main_thread import off_main_thread
from flatout.watch.memory.object_graph import available
from flatout.watch.memory.object_kinds import POINTERS
from flatout.watch.state_watch import StateWatch

__all__ = ["KeptCopies"]

_MOST, _MOST_BYTES = 256, 256 * 1024**2  # copies that are kept
_TWICE = 2  # unchanged before a copy is kept

Copy = Callable[..., Any]


@dataclass(eq=False)
class _Sent:
    """A tensor that was copied, or a part of one: in which state, how often, and what is kept of it."""

    base: weakref.ref[Any]
    version: int
    seen: int = 0
    watch: StateWatch | None = None
    copy: Any = None
    stream: int = 0

    def is_of(self, tensor: Any) -> bool:
        """Return whether it is the same tensor, written to by no operation of torch since."""
        return self.base() is _base(tensor) and self.version == tensor._version


class KeptCopies:
    """Answers `tensor.to(device)` and `tensor.cuda()` where a copy of the tensor as it is lies there already."""

    def __init__(self, kind: str, reports: Reports, acted: Callable[[], None]) -> None:
        """Keep nothing yet, and nothing on other devices than those of a kind; `acted` is told of each answer."""
        self.off = not available()
        self._kind, self._reports, self._acted = kind, reports, acted
        self._sent: OrderedDict[object, _Sent] = OrderedDict()
        self._num_bytes = 0
        if self.off:
            reports.left("flatout's compiled code is missing here")

    def copying(self, name: str, original: Copy) -> Copy:
        """Return what stands for `Tensor.to` or `Tensor.cuda`, as `name` says."""
        is_compiling = torch.compiler.is_compiling

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.off or type(tensor) is not torch.Tensor or is_compiling():
                return original(tensor, *args, **kwargs)
            key = self._key(name, tensor, args, kwargs)
            make = functools.partial(original, tensor, *args, **kwargs)
            return make() if key is None else self._copied(key, tensor, make)

        return copy

    def _key(self, name: str, tensor: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object | None:
        """Return what a copy is known by; None for what is never kept."""
        plain = tensor.device.type == "cpu" and not tensor.requires_grad and tensor.layout is torch.strided
        if not plain or tensor.is_conj() or tensor.is_neg() or tensor.is_inference() or not tensor.numel():
            return None
        asked = {key: value for key, value in kwargs.items() if key != "copy"}
        device = asked_device(name, args, asked)
        if device is None or device.type != self._kind or off_main_thread() or unusual_moment():
            return None
        if self._kind == "cuda" and torch.cuda.is_current_stream_capturing():  # it is copied when the graph is run
            return None
        part = tuple(tensor.shape), tensor.stride(), tensor.data_ptr(), tensor.dtype
        return id(_base(tensor)), part, device, bool(kwargs.get("copy"))

    def _copied(self, key: object, tensor: Any, make: Callable[[], Any]) -> Any:
        known = self._sent.get(key)
        if known is None or not known.is_of(tensor):
            self._forget(key)
            if len(self._sent) >= _MOST:
                self._forget(next(iter(self._sent)))
            self._sent[key] = _Sent(weakref.ref(_base(tensor)), tensor._version)
            return make()
        self._sent.move_to_end(key)
        known.seen += 1
        if known.copy is None:
            return make() if known.seen < _TWICE else self._keep(key, known, tensor, make)
        if known.watch is None or known.watch.look() or known.stream != self._stream():
            self._forget(key)
            return make()
        if self._reports.pace.due:
            return self._proven(key, known, make)
        self._acted()
        return known.copy.clone()

    def _keep(self, key: object, known: _Sent, tensor: Any, make: Callable[[], Any]) -> Any:
        """Copy a tensor, and keep that where it can be told whether the tensor changes."""
        known.seen = -(1 << 62)  # it is tried once
        if tensor.nbytes > _MOST_BYTES or not _is_private(tensor.data_ptr()):
            self._reports.left("a tensor that is copied again is large, or lies in memory that others may write to")
            return make()
        watch = StateWatch([("the tensor", _base(tensor))], files="passed")
        made = make()
        graph = watch.graph
        if watch.unseen or graph.unwatched or graph.opaque - POINTERS or watch.look() or made is tensor:
            self._reports.left("whether a tensor that is copied again changes cannot be told here")
            return made
        while self._num_bytes + made.nbytes > _MOST_BYTES and len(self._sent) > 1:
            self._forget(next(iter(self._sent)))
        self._sent[key] = known  # it may have been the oldest one
        self._num_bytes += made.nbytes
        known.watch, known.copy, known.stream = watch, made.clone(), self._stream()
        return made

    def _proven(self, key: object, known: _Sent, make: Callable[[], Any]) -> Any:
        """Copy a tensor all the same, and hold what is kept against that."""
        with self._reports.pace.proving():
            made = make()
            agrees = same(made, known.copy)
        if not agrees and known.watch is not None and known.watch.look():  # by another thread, meanwhile
            self._forget(key)
        elif not agrees:
            self._differs()
        return made

    def _differs(self) -> None:
        """Say that copies were handed out that may have been wrong.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.off = True
        self._sent.clear()
        reason = "a tensor held other values than the copy of it that was kept"
        self._reports.wrong(reason, "Something has written to it that flatout does not see.", "kept-copies")

    def swapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for `torch.utils.swap_tensors`, which refuses tensors that somebody refers to weakly."""

        def swap(*args: Any, **kwargs: Any) -> Any:
            for key in list(self._sent):
                self._forget(key)
            return original(*args, **kwargs)

        return swap

    def _forget(self, key: object) -> None:
        known = self._sent.pop(key, None)
        if known is not None and known.copy is not None:
            self._num_bytes -= known.copy.nbytes

    def _stream(self) -> int:
        """Return the stream that work goes to just now: what is kept was made on it, and is there for what follows."""
        if self._kind != "cuda":
            return 0
        return int(torch.cuda.current_stream().cuda_stream)


def _base(tensor: Any) -> Any:
    return tensor if tensor._base is None else tensor._base


def _is_private(address: int) -> bool:
    """Return whether memory belongs to this process alone: no file, nothing shared, nothing of a device."""
    try:
        with open("/proc/self/maps", "rb") as file:
            for line in file:
                places, rights, _, _, inode = line.split(None, 5)[:5]
                start, end = (int(each, 16) for each in places.split(b"-"))
                if start <= address < end:
                    return rights.endswith(b"p") and inode == b"0"
    except (OSError, ValueError):
        pass
    return False
