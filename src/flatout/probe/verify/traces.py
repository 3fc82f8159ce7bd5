"""What a training does between two optimizer steps, written down so that two executions can be compared.

Batches are seen where the script receives them, modules where the script calls them: outside every fix. So a fix may
fetch ahead, copy, cast or compile as it likes; what must not change is what the script sees.
"""

import contextlib
import random
import sys
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.verify.fingerprint import BatchPrint, batch_print

__all__ = ["TraceWatch", "random_print"]

_HELD = 2  # batches held to see whether their memory is used again behind the script's back
_HELD_ALWAYS, _HELD_EVERY = 64, 8  # the first batches, then one in so many


def random_print() -> str:
    """Return a fingerprint of the random states of torch, Python and numpy."""
    states = [torch.get_rng_state().numpy().tobytes(), hash(random.getstate()[1]).to_bytes(8, "little", signed=True)]
    if torch.cuda.is_initialized():
        states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        states += [state[1].tobytes(), str(state[2:]).encode()]
    return f"{zlib.crc32(b''.join(states)):08x}"


class TraceWatch:
    """Collects the events of the interval under way; `take` returns them and begins the next."""

    def __init__(self, thread: int, guard: Callable[[Callable[[], None]], None]) -> None:
        """Follow `thread`; `guard` runs what must never raise into the training."""
        self._thread = thread
        self._guard = guard
        self.events: dict[str, list[Any]] = {}
        self._loaders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._passes: list[int] = []  # by loader: passes begun
        self._yielded: dict[int, int] = {}  # by loader: batches of its pass under way
        self._num_batches = 0
        self._held: deque[tuple[int, int, int, Any, BatchPrint]] = deque()
        self._inside = False
        self.loaders: list[weakref.ref[Any]] = []
        self.on_batch: Callable[[Any], Any] | None = None  # the reference in float64 converts it

    def install(self, seams: Seams) -> None:
        """Wrap loaders and clipping, around whatever wraps them already."""
        seams.wrap("torch.utils.data.dataloader:DataLoader.__iter__", self._iter)
        seams.wrap("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", self._next)
        seams.wrap("torch.nn.utils:clip_grad_norm_", self._clip)
        seams.wrap("torch.nn.utils:clip_grad_value_", self._clip)

    def note(self, kind: str, value: Any) -> None:
        """Add one event."""
        self.events.setdefault(kind, []).append(value)

    def take(self) -> dict[str, list[Any]]:
        """Return the events of the interval that ends now, and begin the next one."""
        events, self.events = self.events, {}
        return events

    # -- modules and losses -------------------------------------------------------------------------------------

    def called(self, module: Any, arguments: Any) -> None:
        """An outermost module is called: note its mode and its input."""
        modes = [inner.training for inner in module.modules()]
        found = batch_print(arguments)
        flags = [sum(modes), len(modes), int(torch.is_grad_enabled())]
        self.note("calls", [type(module).__name__, *flags, *found])

    def loss(self, tensors: Any) -> None:
        """`backward()` is called on `tensors`."""
        for tensor in tensors if isinstance(tensors, list | tuple) else [tensors]:
            if isinstance(tensor, torch.Tensor):
                values = tensor.detach().double()
                self.note("losses", float(values if values.numel() == 1 else values.sum()).hex())

    # -- loaders ------------------------------------------------------------------------------------------------

    def _iter(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def iterate(loader: Any) -> Any:
            if get_ident() != self._thread or self._inside:
                return original(loader)
            hits.count += 1
            number = self._begin_pass(loader)
            self._inside = True
            try:
                iterator = original(loader)
            finally:
                self._inside = False
            if isinstance(iterator, torch.utils.data.dataloader._BaseDataLoaderIter):
                with contextlib.suppress(AttributeError):
                    vars(iterator)["_flatout_seen"] = number
                return iterator
            return _Seen(iterator, lambda following: self._follow(number, following))

        return iterate

    def _begin_pass(self, loader: Any) -> int:
        number = self._loaders.get(loader)
        if number is None:
            number = self._loaders[loader] = len(self._passes)
            self._passes.append(0)
            self.loaders.append(weakref.ref(loader))
        self._passes[number] += 1
        self._yielded[number] = 0

        def note() -> None:
            self.note("starts", [number, self._passes[number] - 1, random_print(), _length(loader)])

        self._guard(note)
        return number

    def _next(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def following(iterator: Any) -> Any:
            number = getattr(iterator, "_flatout_seen", None)
            if number is None or get_ident() != self._thread or self._inside:
                return original(iterator)
            hits.count += 1
            return self._follow(number, lambda: original(iterator))

        return following

    def _follow(self, number: int, following: Callable[[], Any]) -> Any:
        """Return the next batch of loader `number`, and note it."""
        self._inside = True
        try:
            batch = following()
        except StopIteration:
            where = [number, self._passes[number] - 1]
            self._guard(lambda: self.note("ends", [*where, self._yielded[number], random_print()]))
            raise
        finally:
            self._inside = False
        self._guard(lambda: self._note_batch(number, batch))
        return batch if self.on_batch is None else self.on_batch(batch)

    def _note_batch(self, number: int, batch: Any) -> None:
        found = batch_print(batch)
        place = (number, self._passes[number] - 1, self._yielded[number])
        self.note("batches", [*place, *found])
        self._yielded[number] += 1
        self._num_batches += 1
        if self._num_batches <= _HELD_ALWAYS or self._num_batches % _HELD_EVERY == 0:
            self._held.append((*place, batch, found))
        while len(self._held) > _HELD:
            *where, old, before = self._held.popleft()
            if batch_print(old) != before:
                self.note("changed", where)

    # -- clipping -----------------------------------------------------------------------------------------------

    def _clip(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def clip(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._thread:
                return original(*args, **kwargs)
            hits.count += 1
            given = args[0] if args else kwargs.pop("parameters")
            held = [given] if isinstance(given, torch.Tensor) else list(given)
            result = original(held, *args[1:], **kwargs)
            limit: Any = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
            self._guard(lambda: self.note("clips", [original.__name__, float(limit), *_norm(held)]))
            return result

        return clip


def _norm(parameters: list[Any]) -> tuple[float, int]:
    """Return the norm of all gradients together, and how many there are."""
    norms = [one.grad.detach().float().norm() for one in parameters if one.grad is not None]
    return (float(torch.stack(norms).norm()) if norms else 0.0), len(norms)


class _Seen:
    """An iterator of a fix's own kind, seen batch by batch; everything else is passed on to it."""

    def __init__(self, inner: Any, follow: Callable[[Callable[[], Any]], Any]) -> None:
        self._inner = inner
        self._follow = follow

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._follow(lambda: next(self._inner))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except Exception:  # a user's __len__ may raise anything
        return -1
