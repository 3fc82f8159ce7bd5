"""One batch ahead: taken from the workers and copied to the device while the step before it runs."""

import contextlib
import weakref
from collections import deque
from typing import Any, Protocol

from flatout.torch_loader.batch_copies import Marked, tensors_at

__all__ = ["BatchSource", "Lookahead", "Peeking", "TransferStreams", "Wanted", "arrived"]

_LEARN_FROM = 2  # batches; what the script copies of them is copied ahead from then on


class Wanted:
    """What the script copies to which device: places in its batches, learned from the first ones."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.places: dict[tuple[object, ...], Any] = {}  # keys that lead to a tensor -> device
        self.seen = 0

    @property
    def known(self) -> bool:
        """Return whether enough was seen."""
        return self.seen >= _LEARN_FROM


class TransferStreams:
    """The side stream that copies run on, one for each device; on the CPU there is none, and nothing to wait for."""

    def __init__(self) -> None:
        """Open none yet."""
        self._side: dict[Any, Any] = {}

    def copy(self, tensor: Any, device: Any) -> tuple[Any, Any]:
        """Begin a copy; return it with the event that ends it (None on the CPU)."""
        import torch

        if device.type != "cuda":
            return tensor.to(device, copy=True), None
        side = self._side.setdefault(device, None) or torch.cuda.Stream(device)
        self._side[device] = side
        side.wait_stream(torch.cuda.current_stream(device))  # else a block that is still in use could be written
        with torch.cuda.stream(side):
            copied = tensor.to(device, non_blocking=True, copy=True)
            return copied, side.record_event()

    def hand_out(self, copied: Any, event: Any) -> Any:
        """Return a copy for use on the current stream."""
        import torch

        if event is not None:
            current = torch.cuda.current_stream(copied.device)
            current.wait_event(event)
            copied.record_stream(current)  # its block must not be reused before this stream is done with it
        return copied


class BatchSource(Protocol):
    """Where batches come from, with a look at the next one."""

    def next_data(self) -> Any:
        """Return the next batch; raise StopIteration at the end, and what goes wrong at its batch."""

    def peek(self) -> Any:
        """Return the batch that `next_data` will return, None where it is not there yet or is not known."""


class Peeking:
    """A look at the next batch of one of torch's iterators with workers; it must not hold that iterator."""

    def __init__(self, iterator: Any) -> None:
        """Look at `iterator`."""
        self._iterator = weakref.ref(iterator)
        self._kind = type(iterator)
        self._peeked: deque[tuple[Any, Exception | None]] = deque()

    def next_data(self) -> Any:
        """Return the next batch, as the iterator's own method of that name does."""
        if not self._peeked:
            return self._kind._next_data(self._iterator())
        batch, error = self._peeked.popleft()
        if error is not None:
            raise error
        return batch

    def peek(self) -> Any:
        """Return the next batch if it is there."""
        iterator: Any = self._iterator()
        if not self._peeked and arrived(iterator):
            try:
                self._peeked.append((self._kind._next_data(iterator), None))
            except Exception as error:  # its traceback would hold the iterator, and with it the workers
                self._peeked.append((None, error.with_traceback(None)))
        return self._peeked[0][0] if self._peeked else None


class Lookahead:
    """Hands out a source's batches; the copies of the next one are under way."""

    def __init__(self, source: BatchSource, wanted: Wanted, streams: TransferStreams) -> None:
        """Begin a pass."""
        self._source = source
        self._wanted = wanted
        self._streams = streams
        self._ahead: tuple[Any, dict[Any, Any]] = (None, {})  # the next batch, and its copies by path
        self._places = Marked()  # tensors of the batch in the script's hands -> path, while that is being learned
        self._copies = Marked()  # the same -> (copy, event, version of the tensor)

    def next_data(self) -> Any:
        """Return the next batch."""
        batch = self._source.next_data()
        copies = self._ahead[1] if self._ahead[0] is batch else {}
        self._ahead = (None, {})
        self._places.clear()
        self._copies.clear()
        for path, tensor in tensors_at(batch):
            if not self._wanted.known:
                self._places.put(tensor, path)
            elif path in copies:
                self._copies.put(tensor, copies[path])
        self._wanted.seen += 1
        if self._wanted.known and self._wanted.places:
            following = self._source.peek()
            self._ahead = (following, self._begin_copies(following))
        return batch

    def _begin_copies(self, batch: Any) -> dict[Any, Any]:
        copies: dict[Any, Any] = {}
        with contextlib.suppress(RuntimeError):  # no room on the device: the script's own copy will say so, or fit
            for path, tensor in tensors_at(batch):
                device = self._wanted.places.get(path)
                if device is not None and tensor.device.type == "cpu":
                    copies[path] = (*self._streams.copy(tensor, device), tensor._version)
        return copies

    def asked(self, tensor: Any, device: Any) -> Any:
        """Return the copy of `tensor` on `device` that was made ahead, None when there is none that is still right."""
        place = self._places.get(tensor)
        if place is not None:
            self._wanted.places[place] = device
        found = self._copies.pop(tensor)
        if found is None or found[0].device != device or found[2] != tensor._version:
            return None
        return self._streams.hand_out(found[0], found[1])


def arrived(iterator: Any) -> bool:
    """Return whether the next batch of an iterator with workers can be had without waiting."""
    task = iterator._task_info.get(iterator._rcvd_idx, ())
    return len(task) == 2 or not iterator._data_queue.empty()
