"""What calling `dataset[i]` again shows: is a sample the same every epoch, and how much of it comes before chance."""

import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from flatout.pipeline.read.batch_reader import transforms_batches
from flatout.pipeline.read.sample_calls import FoundCall, dearest_call
from flatout.pipeline.read.sample_reader import behind
from flatout.pipeline.read.sources import slots
from flatout.probe.core.user_places import is_user_file, user_stack
from flatout.probe.loader.loading import tensors_in
from flatout.schema.run import Frame, SamplePrefix
from flatout.watch.dataset_state import holds_generator

__all__ = ["look_at_samples", "random_states_kept"]

_INDICES = 4
_MOST_WRAPPED = 16  # data sets within a data set
_DEEPEST = 4  # objects within objects
_LONGEST_S = 1.5
_OWN_GENERATOR = "a random generator of its own"
_STREAMS = ("Python's global generator", "torch's global generator", "numpy's global generator")
_DEAREST_LINE_S = 20e-6  # Python's own part of following a line: 0.5 to 2 us, ten times that on a machine at its limit


def look_at_samples(dataset: Any) -> SamplePrefix:
    """Call `dataset[i]` a few times under the same and under other random states and compare.

    Used at the very end of a deep run, whose results nobody keeps; random states are restored all the same.
    """
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        return SamplePrefix(reason="the dataset has no __getitem__")
    states = _random_states()
    try:
        return _look(dataset)
    except Exception as error:
        return SamplePrefix(reason=f"dataset[i] raised {type(error).__name__}")
    finally:
        _restore(states)


def _look(dataset: Any) -> SamplePrefix:
    length = len(dataset)
    indices = sorted({0, length // 3, length // 2, length - 1})[:_INDICES]
    begin, walls, cpus, same, sample = time.perf_counter(), [], [], True, None
    checked, moved = 0, set[str]()
    for index in indices:
        results = []
        for seed in (0, 1):
            _seed(seed)
            streams = _fingerprint()
            wall, cpu = time.perf_counter(), time.thread_time()
            results.append(dataset[index])
            walls.append(time.perf_counter() - wall)
            cpus.append(time.thread_time() - cpu)
            moved |= _moved(streams, _fingerprint())
        checked += 1
        sample = results[0]
        same = same and _equal(results[0], results[1])
        if time.perf_counter() - begin > _LONGEST_S:
            break
    share, place = (1.0, None) if same else _first_random(dataset, indices[0], min(walls[:2]))
    alike = None if same else _alike(dataset, indices[:checked])
    return SamplePrefix(
        checked=checked,
        deterministic=same,
        prefix_share=share,
        seconds=statistics.median(walls),
        cpu_seconds=statistics.median(cpus),
        shares_memory=_is_view(sample),
        sample_bytes=_num_bytes(sample),
        first_random=place,
        drawn_from="" if same else " and ".join(sorted(moved)) or (_OWN_GENERATOR if holds_generator(dataset) else ""),
        has_transform=_has_transform(dataset),
        numbers=_numbers(sample),
        made_at=_made_at(dataset),
        alike=alike.place.label if alike is not None else "",
        alike_share=alike.share if alike is not None else 0.0,
    )


def _alike(dataset: Any, indices: list[int]) -> FoundCall | None:
    """Return the function that gives the same each time, and takes most of a sample; None where there is none."""
    with contextlib.suppress(Exception):
        inner = [behind(dataset, index)[0] for index in indices]
        return dearest_call(dataset, inner[0], indices) if len(set(map(id, inner))) == 1 else None
    return None


def _first_random(dataset: Any, index: int, untraced: float) -> tuple[float, Frame | None]:
    """Return the share of the sample's time before the user line of its first random draw, and that line.

    What following lines costs beside our own work is what the sample takes longer than `untraced` seconds.
    """
    tracer = _DrawTracer()
    previous = sys.gettrace()
    start = time.perf_counter()
    sys.settrace(tracer.enter)
    try:
        dataset[index]
    finally:
        sys.settrace(previous)
    tracer.look(None)
    seconds = time.perf_counter() - start - tracer.spent
    if not tracer.drew:  # it draws from a generator of its own
        return 0.0, None
    dearer = min(max(0.0, seconds - untraced), tracer.lines * _DEAREST_LINE_S)  # all of it before the draw
    return max(0.0, tracer.at - start - dearer) / max(seconds - dearer, 1e-9), tracer.place


class _DrawTracer:
    """Follows user lines until the random states change; what the following costs is taken off again."""

    def __init__(self) -> None:
        _seed(0)
        self._before = _fingerprint()
        self.drew = False
        self.place: Frame | None = None  # the line under way
        self.at = time.perf_counter()  # when it began, less what tracing had cost by then
        self.spent = 0.0
        self.lines = 0

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace the lines of user functions only."""
        return self.line if not self.drew and is_user_file(frame.f_code.co_filename) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Any:
        """Look at the random states as a line begins."""
        self.lines += 1
        self.look(frame)
        return None if self.drew else self.line

    def look(self, frame: FrameType | None) -> None:
        """Note whether the line under way has drawn; if not, `frame` stands at the line that follows it."""
        if self.drew:
            return
        moment = time.perf_counter()
        self.drew = _fingerprint() != self._before
        if not self.drew and frame is not None:
            stack = user_stack(frame)
            self.place = Frame(*stack[0]) if stack else None
            self.at = moment - self.spent
        self.spent += time.perf_counter() - moment


# -- random states ----------------------------------------------------------------------------------------------


def _numpy_random() -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.random if numpy is not None else None


def _random_states() -> tuple[Any, Any, Any]:
    numpy_random = _numpy_random()
    return random.getstate(), torch.get_rng_state(), numpy_random.get_state() if numpy_random else None


def _restore(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if states[2] is not None:
        _numpy_random().set_state(states[2])


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Put the global random states back as they were, whatever is drawn meanwhile."""
    states = _random_states()
    try:
        yield
    finally:
        _restore(states)


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if _numpy_random():
        _numpy_random().seed(seed)


def _fingerprint() -> tuple[Any, ...]:
    numpy_random = _numpy_random()
    position = numpy_random.get_state()[2] if numpy_random else 0
    return hash(random.getstate()), torch.get_rng_state().numpy().tobytes(), position


def _moved(before: tuple[Any, ...], after: tuple[Any, ...]) -> set[str]:
    """Return the names of the global streams that were drawn from between two looks."""
    return {name for name, one, other in zip(_STREAMS, before, after, strict=True) if one != other}


def _has_transform(dataset: Any) -> bool:
    """Return whether `dataset`, or one that it wraps, holds what may be a transform."""
    todo, seen = [dataset], set[int]()
    while todo:
        each = todo.pop()
        if id(each) in seen or len(seen) > _MOST_WRAPPED:
            continue
        seen.add(id(each))
        if transforms_batches(each) or slots(each):
            return True
        for value in getattr(each, "__dict__", {}).values():
            inner = value[:_MOST_WRAPPED] if isinstance(value, list | tuple) else (value,)
            todo += [one for one in inner if isinstance(one, torch.utils.data.Dataset)]
    return False


# -- comparing --------------------------------------------------------------------------------------------------


def _equal(left: Any, right: Any, depth: int = _DEEPEST) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.shape == right.shape and left.dtype == right.dtype and bool(torch.equal(left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key], depth) for key in left)
    if isinstance(left, list | tuple):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(_equal(one, other, depth) for one, other in pairs)
    compare: Callable[[], Any] = getattr(left, "tobytes", lambda: None)
    found = compare()
    if found is not None:
        return bool(found == right.tobytes())
    inside = _attributes(left) if depth else None
    return bool(left == right) if inside is None else _equal(inside, _attributes(right), depth - 1)


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return what an object holds that is compared by identity, None for every other value."""
    own = getattr(value, "__dict__", None)
    by_identity = getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None)
    return own if by_identity and type(own) is dict else None


def _is_view(sample: Any) -> bool:
    inside = _attributes(sample)
    sample = sample if inside is None else list(inside.values())
    for tensor in tensors_in(sample):
        if tensor.nbytes and tensor.untyped_storage().nbytes() >= 4 * tensor.nbytes:
            return True
    parts = sample if isinstance(sample, list | tuple) else (sample,)
    return any(
        getattr(getattr(part, "base", None), "nbytes", 0) >= 4 * getattr(part, "nbytes", 1) > 0 for part in parts
    )


def _numbers(sample: Any) -> int:
    """Return how many Python numbers a sample consists of: the default collate function makes a tensor of each."""
    if isinstance(sample, Mapping):
        return sum(map(_numbers, sample.values()))
    if isinstance(sample, list | tuple):
        return sum(map(_numbers, sample))
    return int(isinstance(sample, int | float))


def _made_at(dataset: Any) -> Frame | None:
    """Return where `__getitem__` of `dataset` begins, or of the one that it wraps, where that is the user's own."""
    for _ in range(_MOST_WRAPPED):
        code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
        if code is not None and is_user_file(code.co_filename):
            return Frame(os.path.abspath(code.co_filename), code.co_firstlineno, code.co_qualname)
        dataset = getattr(dataset, "dataset", None)
    return None


def _num_bytes(sample: Any, depth: int = _DEEPEST) -> int:
    """Return the bytes of the arrays, tensors, pictures and texts of a sample, also inside of lists and objects."""
    if isinstance(sample, Mapping):  # also what a tokenizer of transformers returns
        return sum(_num_bytes(each, depth) for each in sample.values())
    if isinstance(sample, list | tuple):
        return sum(_num_bytes(each, depth) for each in sample)
    if isinstance(sample, bytes | bytearray | str):
        return len(sample)
    if hasattr(sample, "getbands"):  # a PIL image
        return int(sample.width * sample.height * len(sample.getbands()))
    inside = _attributes(sample) if depth else None
    if inside and not hasattr(sample, "nbytes"):
        return _num_bytes(inside, depth - 1)
    found = getattr(sample, "nbytes", 0)
    return int(found) if isinstance(found, int) else 0
