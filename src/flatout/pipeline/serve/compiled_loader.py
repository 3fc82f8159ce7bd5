"""`compile_loader`: the loader that is walked as the script's own is, and costs less."""

import contextlib
import copy
import functools
import os
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from flatout.loader_account import IN_A_THREAD
from flatout.pipeline.cache.disk.disk_cache import CacheFolder
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import RowCache
from flatout.pipeline.device.device_pass import DevicePass
from flatout.pipeline.device.device_stream import DeviceStream
from flatout.pipeline.device.resident_rows import ResidentRows
from flatout.pipeline.inspect.determinism import walks_in_its_own_way
from flatout.pipeline.serve.loader_accounts import LoaderAccounts
from flatout.pipeline.serve.loader_server import LoaderServer
from flatout.pipeline.serve.served_loader import CachePolicy
from flatout.pipeline.serve.served_streams import ServedStreams
from flatout.torch_loader import pass_start
from flatout.torch_loader.streamed.stream_refusal import is_stream
from flatout.torch_loader.worker_start import threads_of
from flatout.units import format_bytes
from flatout.watch.freshness import ON_CHANGE
from flatout.watch.main_thread import off_main_thread
from flatout.watch.per_class_cache import PerClassCache

__all__ = ["CompiledLoader", "LoaderCaches", "clashes", "compile_loader"]


_FLEETING = 2
"""Data sets of one type, in a row, that were gone after one pass. Where one is made anew for each epoch, what is kept
of it serves nothing, and looking at it costs: 200 epochs of 9 steps took 8.5 to 9.3 s in place of 6.2 to 6.6 (n=3)."""

_EXPLAIN = "explain"

_leading: "weakref.WeakSet[LoaderCaches]" = weakref.WeakSet()
_common: "dict[tuple[int | None, Path | None, str], LoaderCaches]" = {}
"""What `compile_loader` keeps on the CPU, by its arguments `max_bytes`, `folder` and `on_change`."""


class LoaderCaches:
    """What is kept of all loaders: one cache for each data set and collate function, all within one budget."""

    def __init__(
        self,
        max_bytes: int | None = None,
        *,
        purpose: str = "run",
        hit: Callable[[], None] = lambda: None,
        folder: Path | None = None,
        device: DeviceStream | None = None,
        on_change: str = "stop",
        where: Callable[[], str] = lambda: "",
        tell: Callable[[str], None] | None = None,
        with_streams: bool = False,
    ) -> None:
        """Keep at most `max_bytes` in memory; None: a share of what is free. `folder` as in `compile_loader`.

        `device`: where batches that are not the script's own are made; `bring` brings the others there.

        `purpose`: "run" for a training; "verify" serves each sample from memory the first time that it is asked for,
        "timing" serves repeated rows from the first batch on: in trials, whose results are thrown away. `hit` is called
        for every batch that comes from memory. `on_change`: "stop" or "warn", where a change is seen too late.
        `where()` says which line of the script walks a loader. `tell(line)` is called once where nothing is served by
        the third pass over a loader. `with_streams`: streams are served, too.
        """
        self.accounts, self._where, self._tell = LoaderAccounts(), where, tell
        rows: Callable[..., RowCache] = RowCache if device is None else functools.partial(ResidentRows, device=device)
        self._folder = None if folder is None else CacheFolder(folder)
        self._policy = CachePolicy(MemoryBudget(max_bytes), purpose, hit, self._folder, rows, on_change)
        served = ServedStreams(self._policy.budget, hit, where, on_change)
        self.streams = served if with_streams else None
        self._caches: dict[int, dict[Any, LoaderServer]] = {}
        self._passes: dict[int, int] = {}  # over each data set
        self._fleeting: dict[type, int] = {}

    def of(self, loader: Any) -> LoaderServer:
        """Return the cache of `loader`; loaders of one data set and collate function share it."""
        owner = _owner(loader)
        key = id(owner)
        if key not in self._caches:
            self._caches[key] = {}
            weakref.finalize(owner, _forget, weakref.ref(self), key).atexit = False
        stays = id(loader) if loader.persistent_workers else None  # its workers see what they saw at first
        workers = bool(loader.num_workers)
        kind = (_key(loader.collate_fn), threads_of(loader), loader.worker_init_fn is None, workers, stays)
        known = self._caches[key]
        if kind not in known:
            known[kind] = LoaderServer(loader, self._policy)
            self.accounts.begin(known[kind], self._where())
        return known[kind]

    def walk(self, loader: Any, iterate: Callable[[Any], Any]) -> Any:
        """Return an iterator over `loader`; `iterate` is what its class does by itself.

        A data set of a type whose last ones were gone after one pass is left alone until its second. So is every pass
        in another thread than the main one: random streams are the process's, and they are put back here now and then.
        """
        owner = _owner(loader)
        key, kind = id(owner), type(owner)
        if off_main_thread():
            self.accounts.pass_by(kind.__name__, self._where(), IN_A_THREAD)
            return iterate(loader)
        if self.streams is not None and self.streams.serve(loader):
            return self.streams.walk(loader, iterate)
        if key not in self._passes:
            weakref.finalize(owner, _gone, weakref.ref(self), key, kind).atexit = False
        self._passes[key] = self._passes.get(key, 0) + 1
        if self._passes[key] > 1:
            self._fleeting.pop(kind, None)
        elif self._folder is None and self._fleeting.get(kind, 0) >= _FLEETING:
            self.accounts.pass_by(kind.__name__, self._where())
            return iterate(loader)
        walked = self.of(loader).walk(loader, iterate)
        if owner is not loader.dataset and not loader.persistent_workers:
            with contextlib.suppress(AttributeError):  # a loader made for one pass: its data set is found through it
                walked.loader_of_flatout = loader
        if self._tell is not None and (unserved := self.accounts.nothing_served()):
            tell, self._tell = self._tell, None
            for account in unserved:
                tell(str(account))
        return walked

    def lead(self, leads: bool) -> None:
        """Say whether this one serves where another of the process could as well: that one asks `others_lead`."""
        (_leading.add if leads else _leading.discard)(self)

    def others_lead(self) -> bool:
        """Return whether another one serves in place of this."""
        return any(each is not self for each in _leading)

    def wait(self) -> None:
        """Wait until what is being saved is saved."""
        if self._folder is not None:
            self._folder.behind.wait()


def _owner(loader: Any) -> Any:
    """Return what is kept belongs to: the data set, or the loader of one that cannot be watched."""
    try:
        weakref.ref(loader.dataset)
    except TypeError:
        return vars(loader).get("_plain", loader)
    return loader.dataset


def _gone(kept: "weakref.ref[LoaderCaches]", key: int, kind: type) -> None:
    alive = kept()
    if alive is not None and alive._passes.pop(key, 0) == 1:
        alive._fleeting[kind] = alive._fleeting.get(kind, 0) + 1


def _key(collate: Any) -> Any:
    """Return what two loaders have in common whose collate functions are one; `LoaderServer` keeps it alive."""
    if type(collate) is types.MethodType:  # a new one each time that it is asked for
        return id(collate.__self__), id(collate.__func__)
    return id(collate)


def _forget(kept: "weakref.ref[LoaderCaches]", key: int) -> None:
    alive = kept()
    if alive is not None:
        alive.accounts.end(alive._caches.pop(key, {}).values())


class CompiledLoader(DataLoader[Any]):
    """A DataLoader whose batches are those of the one it was made from, from memory once they are known."""

    _kept: LoaderCaches
    _plain: DataLoader[Any]
    _told: dict[str, Any]
    _device: DeviceStream | None

    def __iter__(self) -> Any:
        return pass_start.begin_pass(self)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValueError as error:
            raise ValueError(str(error).replace(CompiledLoader.__name__, DataLoader.__name__)) from None

    def _uncompiled(self) -> DataLoader[Any]:
        plain = copy.copy(self._plain)
        vars(plain).update({name: vars(self)[name] for name in self._told}, _iterator=None)
        return plain

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _compiled(copy.deepcopy(self._uncompiled(), memo), self._kept, self._device)

    def __reduce__(self) -> Any:
        return _compiled_again, (self._uncompiled(),)

    def begin_pass(self) -> Any:
        """Return what `iter()` gives of this loader."""
        self._follow()
        walked = self._kept.walk(self, DataLoader.__iter__)
        return walked if self._device is None else DevicePass(walked, self._device, self._kept.of(self))

    def _follow(self) -> None:
        """Take what was set on the loader that this one was made from, since then, too."""
        now = vars(self._plain)
        changed = {name: now[name] for name, value in self._told.items() if name in now and now[name] is not value}
        self._told.update(changed)
        vars(self).update(changed)

    def explain(self) -> str:
        """Return one line on what is kept, or why nothing is."""
        there = "" if self._device is None else f"; batches are copied to {self._device.device}"
        if self._kept.streams is not None and is_stream(self):
            return self._kept.streams.explain(self) + there
        cache = self._kept.of(self)
        strategy = cache.strategy
        if strategy.reason:
            return f"left as it is: {strategy.reason}{there}"
        if strategy.samples is not None:
            return strategy.samples.explain() + there
        kept_rows, on_disk = strategy.kept_rows, strategy.on_disk
        made, store = "made in batches; " if kept_rows.compiler is not None else "", kept_rows.store
        number, num_bytes = (0, 0) if store is None else (store.num_filled, store.num_bytes)
        kept = f"{number} samples kept in {format_bytes(num_bytes)}"
        if self._device is not None and isinstance(kept_rows, ResidentRows) and kept_rows.resident:
            kept, there = f"{kept} on {self._device.device}", ""
        disk = f"; {on_disk.state}" if on_disk is not None and on_disk.state else ""
        changed = f"; {cache.changed} has changed: the rest of the pass is read again" if cache.changed else ""
        return f"{made}{kept}; {cache.served} batches came from there{disk}{there}{changed}"


def compile_loader(
    loader: DataLoader[Any],
    *,
    device: torch.device | str | int | None = None,
    max_bytes: int | None = None,
    max_device_bytes: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    on_change: str = "stop",
) -> DataLoader[Any]:
    """Return a loader with the samples, order, random streams and bits of `loader`; `docs/input.md` says how.

    What the data set computes is computed once where that gives the same each time. Everything that speaks against it
    is found out, and leaves the loader as it is; `flatout.explain(loader)` says which. What is kept belongs to the data
    set: loaders compiled with the same arguments and no `device` have it in common, so one may be made anew for each
    epoch.

    `max_bytes`: memory for samples; None: 40 % of what is free, divided among the ranks of this machine. `folder`:
    where samples are kept between runs, beyond `max_bytes` too. `device`: batches come with all their tensors there;
    samples are kept on it while they take at most `max_device_bytes` (None: a quarter of what is free there).

    What samples are made from is looked at before each batch, so what changes is in the next one. `on_change`: where
    that is seen too late, the training stops ("stop"), or goes on with a warning ("warn"). A loader of a class that
    walks in a way of its own comes back as it is, without `explain()`; other classes keep their name and methods.
    `flatout.explain(loader)` takes either.

    Raises:
        RuntimeError: torch does not know the device, or it is not there.
        ValueError: `on_change` is neither.
        ChangedTooLate: while walking the loader: something changed, and that was seen too late.
    """
    if on_change not in ON_CHANGE:
        raise ValueError(f"on_change is {on_change!r}; it must be {' or '.join(ON_CHANGE)}")
    path = None if folder is None else Path(folder).absolute()
    target = None if device is None else DeviceStream(device, max_device_bytes)
    return _compiled(loader, _kept_for(max_bytes, path, target, on_change), target)


def _compiled(loader: DataLoader[Any], kept: LoaderCaches, target: DeviceStream | None) -> DataLoader[Any]:
    kind = _compiled_class(type(loader))
    if kind is None or clashes(loader):
        return loader
    made: CompiledLoader = copy.copy(loader)  # type: ignore[assignment]
    object.__setattr__(made, "__class__", kind)
    told = {name: value for name, value in vars(loader).items() if name != "_iterator"}
    vars(made).update(_kept=kept, _plain=loader, _told=told, _iterator=None, _device=target)
    return made


def clashes(loader: DataLoader[Any]) -> list[str]:
    """Return the names of a loader's own that a compiled loader needs for itself."""
    if isinstance(loader, CompiledLoader):
        return []
    ours = {*CompiledLoader.__annotations__, *(name for name in vars(CompiledLoader) if not name.startswith("__"))}
    own = set(object.__getattribute__(loader, "__dict__"))
    own.update(*(vars(base) for base in type(loader).__mro__ if base not in DataLoader.__mro__))
    return sorted(own & (ours - {_EXPLAIN}))


def _compiled_again(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return what a compiled loader is where it was pickled: compiled with the usual arguments."""
    return compile_loader(loader)


@PerClassCache
def _compiled_class(kind: Any) -> Any:
    """Return the class of what is made of loaders of a class; None where that walks in a way of its own."""
    if kind is DataLoader:
        return CompiledLoader
    if walks_in_its_own_way(kind):
        return None
    inner = next(base for base in kind.__mro__ if not issubclass(base, CompiledLoader))
    if issubclass(kind, CompiledLoader):  # compiled once more
        return kind if inner is DataLoader else _compiled_class(inner)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    own = next((vars(base)[_EXPLAIN] for base in kind.__mro__ if _EXPLAIN in vars(base)), None)
    if own is not None:  # of the script's class: it stays
        names[_EXPLAIN] = own
    return type(kind.__name__, (CompiledLoader, kind), names)


def _kept_for(max_bytes: int | None, folder: Path | None, device: DeviceStream | None, on_change: str) -> LoaderCaches:
    """Return what loaders compiled with these arguments have in common; on a device, each has its own."""
    if device is not None:
        return LoaderCaches(max_bytes, folder=folder, device=device, on_change=on_change, with_streams=True)
    return _common.setdefault(
        (max_bytes, folder, on_change), LoaderCaches(max_bytes, folder=folder, on_change=on_change, with_streams=True)
    )
