"""Where a stream of Hugging Face `datasets` is, as it notes that in itself for `state_dict()`.

Such a stream counts, for each sample, in a dictionary that it has as `_state_dict`. Another process that reads it ahead
counts there; of each batch it tells what the dictionary holds after it, and the script's process writes that into its
own. So `state_dict()`, a pickle or a copy of the stream say where the batch is that the script has received. Its parts
have dictionaries of their own, which the script does not ask for: some are theirs alone, and count what threads of the
stream have read ahead. All else of the parts has to stay as it is.
"""

import operator
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from flatout.watch.components import is_own, names_in, parts
from flatout.watch.dataset_state import same

__all__ = ["KeptPlace", "NotedPlace", "StreamPlace", "settings_of"]

_MODULE, _STREAM, _NODE, _COUNTS = (
    "datasets.iterable_dataset",
    "IterableDataset",
    "_BaseExamplesIterable",
    "_state_dict",
)
_BEGINS = ("_epoch", "_starting_state_dict")  # what a stream reads as it begins, and at no other time
_ASKED = {"epoch", *_BEGINS, "getattr", "vars", "__dict__", "attrgetter", "copy", "deepcopy", "dumps"}
_TRACK, _CURRENT = "datasets.utils.track", "last_item"  # the file that is read, which messages name
_RENEWED = frozenset((_COUNTS, _CURRENT, "_interleaved", "_original_state_dict"))  # whenever a stream begins
_ITEMS, _DEPTH = 1000, 3
_LEAVES = (str, bytes, int, float, complex, bool, type(None))


@dataclass(frozen=True)
class _Ref:
    number: int


class NotedPlace(NamedTuple):
    """What the dictionaries hold: of each its kind and items, those inside others by their numbers.

    Attributes:
        roots: what each stream has as `_state_dict`.
        containers: dictionaries as lists of pairs, and lists.
    """

    roots: list[Any]
    containers: list[tuple[str, list[Any]]]


class KeptPlace(NamedTuple):
    """The dictionaries themselves, of all parts, and what those of the streams held."""

    counts: list[Any]
    held: list[tuple[Any, Any]]


class StreamPlace:
    """The parts of the streams that a data set reads, and where they are.

    Attributes:
        streams: those of them that are whole streams.
        nodes: the parts.
        others: all that they are made of besides, each with what it is called.
        in_threads: several sources are read by threads that run the script's code, which may draw in any order.
        seen: where they were when that was asked or written last.
    """

    def __init__(self, dataset: Any) -> None:
        """Find them in a data set, which is one itself or holds some; there may be none."""
        self.nodes, kinds = _nodes_in(dataset), _kinds()
        self.streams = [node for node in self.nodes if isinstance(node, kinds[:1])]
        self._ordered = [*self.streams, *(node for node in self.nodes if not isinstance(node, kinds[:1]))]
        self.in_threads = any(map(_own_code, _in_threads(self.nodes)))
        self._renewed = _RENEWED if self.nodes and _asks(dataset) else _RENEWED.union(_BEGINS)
        self._fixed = [_but(self._renewed, node) for node in self.nodes]
        self.others = self._others()
        self.take()

    @property
    def left_out(self) -> list[Any]:
        """Return what is not to be watched by others: `touched` tells of it."""
        return [*self.nodes, *(each for each in self._counts if each is not None), *self._objects]

    def _others(self) -> list[tuple[str, Any]]:
        inner = {id(node) for node in self.nodes}
        found = [
            (f"{type(node).__name__}.{name}", value)
            for node, fixed in zip(self.nodes, self._fixed, strict=True)
            for name, value in fixed.items()
            if id(value) not in inner and not isinstance(value, _LEAVES)
        ]
        kinds = {type(node): None for node in self.nodes}
        return [*found, *((kind.__name__, kind) for kind in kinds)]

    def take(self) -> None:
        """Take it that they are where they are now.

        Raises:
            TypeError: they say so by something of which nobody knows whether it stays as it is.
        """
        self._counts = list(map(_counts_of, self._ordered))
        self.seen, self._objects = _read(self._counts[: len(self.streams)])
        self._held = list(map(_items_of, self._objects))

    def differs(self) -> str:
        """Return what the parts have another of, besides where they are; an empty string for nothing."""
        for node, fixed in zip(self.nodes, self._fixed, strict=True):
            if self._stays(node, fixed):
                continue
            now = _but(self._renewed, node)
            names = [name for name in {**fixed, **now} if now.get(name, node) is not fixed.get(name, node)]
            if names:
                return f"{type(node).__name__}.{names[0]}"
        return ""

    def _stays(self, node: Any, fixed: dict[str, Any]) -> bool:
        """Return whether a part has what it had; some us, for every batch. A list is looked at by who asks."""
        own = vars(node)
        count = len(own) - sum(map(own.__contains__, self._renewed))
        alike = count == len(fixed) and fixed.keys() <= own.keys() and not isinstance(node, list)
        return alike and all(map(operator.is_, map(own.get, fixed), fixed.values()))

    def touched(self) -> str:
        """Return what somebody else has changed since `take` or `write`, an empty string for nothing."""
        if not self.nodes or (changed := self.differs()):
            return changed if self.nodes else ""
        if all(_same_items(each, held) for each, held in zip(self._objects, self._held, strict=True)):
            return ""
        now, objects = _read(self._counts[: len(self.streams)])
        alike = len(objects) == len(self._objects) and all(map(operator.is_, objects, self._objects))
        return "" if alike and same(now, self.seen) else f"{type(self.streams[0]).__name__}.{_COUNTS}"

    def begun_anew(self) -> bool:
        """Return whether somebody else has begun to read since `take` or `write`: parts then have other dictionaries.

        Those that this pass counts in are as they were; it goes on in the new ones.
        """
        return not all(map(operator.is_, self._counts, map(_counts_of, self._ordered)))

    def write(self, place: NotedPlace) -> None:
        """Let them be at `place`; dictionaries that are there stay the same ones."""
        if not self.nodes:
            return
        writing = _Writing(place)
        for stream, root in zip(self.streams, place.roots, strict=True):
            vars(stream)[_COUNTS] = writing.written(root, _counts_of(stream))
        self.take()

    def keep(self) -> KeptPlace:
        """Return what `put_back` takes."""
        return KeptPlace(list(map(_counts_of, self._ordered)), [(each, each.copy()) for each in self._objects])

    def put_back(self, kept: KeptPlace) -> None:
        """Let them be where they were, in the same dictionaries."""
        for each, held in kept.held:
            each.clear()
            each.update(held) if type(each) is dict else each.extend(held)
        for node, counts in zip(self._ordered, kept.counts, strict=True):
            if _COUNTS in vars(node):
                vars(node)[_COUNTS] = counts
        self.take()


def settings_of(place: StreamPlace) -> list[Any]:
    """Return what each stream will begin with; equal for equal ones. To go on from somewhere is equal to nothing."""
    epoch, start = _BEGINS
    own = [vars(stream) for stream in place.streams]
    return [object() if each.get(start) is not None else int(each.get(epoch, 0)) for each in own]


def _read(roots: list[Any]) -> tuple[NotedPlace, list[Any]]:
    """Return what dictionaries hold, and all that are in them, each once."""
    numbers: dict[int, int] = {}
    objects: list[Any] = []

    def told(value: Any) -> Any:
        if type(value) in (dict, list):
            if id(value) not in numbers:
                numbers[id(value)] = len(objects)
                objects.append(value)
            return _Ref(numbers[id(value)])
        return _plain(value)

    found = [told(root) for root in roots]
    containers: list[tuple[str, list[Any]]] = []
    while len(containers) < len(objects):
        each = objects[len(containers)]
        items = [(_plain(key), told(value)) for key, value in each.items()] if type(each) is dict else map(told, each)
        containers.append((type(each).__name__, list(items)))
    return NotedPlace(found, containers), objects


class _Writing:
    """One place, as it is written."""

    def __init__(self, place: NotedPlace) -> None:
        self._containers = place.containers
        self._made: dict[int, Any] = {}
        self._used: set[int] = set()

    def written(self, value: Any, there: Any) -> Any:
        """Return a value of the place; `there`: what stands where it is to stand."""
        if not isinstance(value, _Ref):
            return value
        if value.number in self._made:
            return self._made[value.number]
        kind, items = self._containers[value.number]
        reusable = type(there).__name__ == kind and id(there) not in self._used
        into: Any = there if reusable else {"dict": dict, "list": list}[kind]()
        self._made[value.number] = into
        self._used.add(id(into))
        before = into.copy()
        if kind == "dict":
            filled = {key: self.written(item, before.get(key)) for key, item in items}
            into.clear()
            into.update(filled)
        else:
            before += [None] * len(items)
            into[:] = [self.written(item, old) for item, old in zip(items, before, strict=False)]
        return into


def _nodes_in(dataset: Any) -> list[Any]:
    kinds = _kinds()
    if not kinds:
        return []
    return list(_within([part for part in parts(dataset) if isinstance(part, kinds[0])], kinds))


def _kinds() -> tuple[Any, ...]:
    """Return the classes of streams and of their parts; none where the package is not there, or another one."""
    module = sys.modules.get(_MODULE)
    tracked = sys.modules.get(_TRACK)
    found = (
        *(getattr(module, name, None) for name in (_STREAM, _NODE)),
        *(getattr(tracked, name, None) for name in ("TrackedIterableFromGenerator", "tracked_list")),
    )
    known = all(isinstance(each, type) for each in found)
    return found if known else ()


def _within(streams: list[Any], kinds: tuple[Any, ...]) -> Iterator[Any]:
    """Yield streams and what they are made of, each once, in an order that is the same in another process."""
    seen: set[int] = set()
    queue = [(each, 0) for each in streams]
    while queue:
        node, depth = queue.pop(0)
        inner: list[Any] = []
        if isinstance(node, kinds) and id(node) not in seen:
            seen.add(id(node))
            yield node
            inner, depth = [*_but(_RENEWED, node).values()], 0
        elif isinstance(node, list | tuple | dict) and len(node) <= _ITEMS and depth < _DEPTH:
            inner += node.values() if isinstance(node, dict) else node
        queue += [(each, depth + 1) for each in inner]


def _in_threads(nodes: list[Any]) -> list[Any]:
    """Return what is read by threads: sources of which one sample each is read ahead."""
    several = [each for node in nodes for each in vars(node).get("ex_iterables", ())]
    return [*several, *(vars(node)["ex_iterable"] for node in nodes if "max_input_shards" in vars(node))]


def _own_code(thing: Any) -> list[types.CodeType]:
    functions = [part for part in parts(thing) if isinstance(part, types.FunctionType)]
    return [each.__code__ for each in functions if is_own(str(each.__globals__.get("__name__", "")))]


def _asks(dataset: Any) -> bool:
    """Return whether code of the script's, which reads the stream, may ask in the middle of a pass how it began."""
    named = [names_in(code) for code in _own_code(dataset)]
    return any(_ASKED & (each.attributes | each.read) for each in named)


def _but(names: frozenset[str], node: Any) -> dict[str, Any]:
    """Return what a part has besides some `names`; of a list, its items too."""
    own = {name: value for name, value in vars(node).items() if name not in names}
    return own | {str(number): each for number, each in enumerate(node)} if isinstance(node, list) else own


def _plain(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    if isinstance(value, _LEAVES) or (isinstance(value, tuple) and all(isinstance(each, _LEAVES) for each in value)):
        return value
    if isinstance(value, numpy.ndarray | numpy.generic) and not value.dtype.hasobject:
        return value.copy()
    raise TypeError(f"where the stream is, it says by an object of {type(value).__name__}")


def _counts_of(node: Any) -> Any:
    return vars(node).get(_COUNTS)


def _items_of(container: Any) -> tuple[Any, ...]:
    return (*container, *container.values()) if type(container) is dict else tuple(container)


def _same_items(container: Any, held: tuple[Any, ...]) -> bool:
    """Return whether a dictionary or list has the very objects that it had, all of which stay as they are."""
    now = _items_of(container)
    return len(now) == len(held) and all(map(operator.is_, now, held)) and not any(map(_is_array, held))


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy"
