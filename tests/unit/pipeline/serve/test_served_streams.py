"""`compile_loader` of streams: the same batches, errors and random streams, read ahead or from memory, or a reason.

Modules: flatout.pipeline.serve.served_streams, flatout.torch_loader.streamed.stream_memory,
flatout.torch_loader.streamed.stream_refusal.
"""

import itertools
import os
import queue
import random
import threading

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import flatout
from flatout.errors import ChangedTooLate
from flatout.pipeline.serve.compiled_loader import LoaderCaches
from flatout.watch.dataset_state import random_states, same, undrawn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # said where there is one core
    pytest.mark.filterwarnings("ignore:Length of IterableDataset"),
]

KEPT, AHEAD, ALONE = "that are kept in", "batches came from there; nothing is kept", "left as it is"
UNTOUCHED = "a stream, read ahead by another process"


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch):
    """Take what another process reads, however quick a sample is and however busy the machine."""
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._LONGEST_WAIT", float("inf"))
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._LAG", 10_000)
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._WORTH_S", 0)


def begin():
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def untouched(loader):
    return loader


def walk(make, wrap, passes=5, stop_at=None, **options):
    """Return all that a script sees of some passes, and the loader."""
    begin()
    dataset = make()
    loader = wrap(DataLoader(dataset, **({"batch_size": 4} | options)))
    seen = []
    for number in range(passes):
        batches = enumerate(loader)
        while True:
            try:
                count, batch = next(batches)
            except StopIteration:
                break
            except KeyError as error:
                seen.append(error.args)
                continue
            seen.append((copied(batch), float(torch.rand(()))))
            spoil(batch)
            if count == stop_at:
                break
        del batches
        seen.append((number, random.random(), [*getattr(dataset, "seen", [])], getattr(dataset, "passes", 0)))
    return seen, random_states(), loader


def copied(batch):
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, list | tuple):
        return type(batch)(map(copied, batch))
    return {key: copied(value) for key, value in batch.items()} if isinstance(batch, dict) else batch


def spoil(batch):
    """Write into what was delivered, as an augmentation on the device's side does."""
    if isinstance(batch, torch.Tensor):
        batch.zero_()
    elif isinstance(batch, list):
        for each in batch:
            spoil(each)
        batch.append("spoilt")
    elif isinstance(batch, dict):
        for each in [*batch.values()]:
            spoil(each)
        batch["spoilt"] = True


def compared(make, **options):
    """Return what is said of a compiled loader whose passes were seen to be those of the plain one."""
    plain, states, _ = walk(make, untouched, **options)
    ours, our_states, loader = walk(make, flatout.compile_loader, **options)
    said = flatout.explain(loader)
    assert same(ours, plain), said
    assert undrawn(states, our_states), said
    return said


class Numbers(IterableDataset):
    def __init__(self, length=40):
        self.length = length

    def __iter__(self):
        for number in range(self.length):
            yield self.sample(number)

    def sample(self, number):
        return torch.arange(6.0) * number, number


class Texts(Numbers):
    def sample(self, number):
        return {"text": "a" * number, "none": None, "both": (number, [str(number)])}


class Uneven(Numbers):
    def __iter__(self):
        for number in range(30):
            yield torch.ones(1 + number % 5, 3) * number


class Buffered(Numbers):
    """A state in the generator: samples leave a buffer in another order."""

    def __iter__(self):
        held = []
        for number in range(self.length):
            held.append(self.sample(number))
            if len(held) > 7:
                yield held.pop(number % 5)
        yield from held


class Declared(Numbers):
    def __len__(self):
        return self.length


class Short(Numbers):
    """Gives more than it declares."""

    def __len__(self):
        return 12


class Asking(Numbers):
    """Asks which worker it is in."""

    def __iter__(self):
        worker = get_worker_info()
        step = 1 if worker is None else worker.num_workers
        return iter(range(0 if worker is None else worker.id, self.length, step))


class Eager(Numbers):
    def __iter__(self):
        order = sorted(range(self.length), key=lambda number: -number)
        return map(self.sample, order)


class Threaded(Numbers):
    """Reads ahead by a thread of its own."""

    def __iter__(self):
        ready = queue.Queue()  # with room for all: a thread that waits for ever would be seen by other tests
        threading.Thread(target=self.fill, args=(ready,), daemon=True).start()
        while (sample := ready.get()) is not None:
            yield sample

    def fill(self, ready):
        for number in range(self.length):
            ready.put(self.sample(number))
        ready.put(None)


class Packed(Numbers):
    def __iter__(self):
        held = []
        for number in range(6 * self.length):
            held += [number] * (number % 3)
            while len(held) >= 8:
                yield torch.tensor(held[:8])
                held = held[8:]


class Arrays(Numbers):
    def sample(self, number):
        return numpy.full((3, 2), number, dtype=numpy.float32), {"n": numpy.int64(number)}


class Drawing(Numbers):
    def sample(self, number):
        return torch.arange(3.0) * number + random.random()


class DrawingAll(Numbers):
    def sample(self, number):
        return torch.rand(3) + random.gauss(0, 1) + float(numpy.random.rand()), number


class Shuffling(Numbers):
    def __iter__(self):
        order = list(range(self.length))
        random.shuffle(order)
        yield from map(self.sample, order)


class DrawingSeldom(Numbers):
    def sample(self, number):
        return number + (random.random() if number == 33 else 0.0)


class HoldingRandom(Numbers):
    def __init__(self):
        super().__init__()
        self.rng = numpy.random.default_rng(1)

    def sample(self, number):
        return number + self.rng.normal()


class Epochs(Numbers):
    """Counts its passes, and gives something else in each."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        for number in range(self.length):
            yield number * self.passes


class FromTheSystem(Numbers):
    def sample(self, number):
        return number + 0 * int.from_bytes(os.urandom(2), "little")


class Failing(Numbers):
    def sample(self, number):
        if number == 29:
            raise KeyError("sample 29")
        return number


class FewerEachTime(Numbers):
    """Ends earlier in each pass."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        yield from range(self.length - 5 * self.passes)


class ItsOwnIterator(Numbers):
    def __iter__(self):
        self.number = 0
        return self

    def __next__(self):
        self.number += 1
        if self.number > self.length:
            raise StopIteration
        return self.number


class Logging(Numbers):
    def __init__(self):
        super().__init__()
        self.seen = []

    def sample(self, number):
        self.seen.append(number)
        return number


class Ending(Numbers):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __iter__(self):
        number = 0
        try:
            for number in range(self.length):
                yield number
        finally:
            self.seen.append(number)


class Handing(Numbers):
    """Hands on an iterator that it holds: the second pass has nothing."""

    def __init__(self):
        super().__init__()
        self.held = iter(range(self.length))

    def __iter__(self):
        return self.held


STREAMS = {
    "plain": (Numbers, {}, KEPT),
    "texts and None": (Texts, {"collate_fn": list}, KEPT),
    "uneven, as they are": (Uneven, {"batch_size": None}, KEPT),
    "a buffer": (Buffered, {}, KEPT),
    "a length": (Declared, {}, KEPT),
    "more than its length": (Short, {}, KEPT),
    "asks for its worker": (Asking, {}, KEPT),
    "eager": (Eager, {}, KEPT),
    "a thread inside": (Threaded, {}, KEPT),
    "packed": (Packed, {}, KEPT),
    "arrays": (Arrays, {}, KEPT),
    "arrays, no tensors": (Arrays, {"collate_fn": list}, KEPT),
    "the last left out": (lambda: Numbers(38), {"drop_last": True}, KEPT),
    "a collate function": (Numbers, {"collate_fn": lambda samples: {"first": samples[0], "n": len(samples)}}, KEPT),
    "an own generator": (Numbers, {"generator": torch.Generator()}, KEPT),
    "draws": (Drawing, {}, AHEAD),
    "draws from all": (DrawingAll, {}, AHEAD),
    "shuffles": (Shuffling, {}, UNTOUCHED),
    "draws once": (DrawingSeldom, {}, UNTOUCHED),
    "an own random generator": (HoldingRandom, {}, UNTOUCHED),
    "passes differ": (Epochs, {}, UNTOUCHED),
    "fewer each time": (FewerEachTime, {}, UNTOUCHED),
    "asks the system": (FromTheSystem, {}, KEPT),
    "fails": (Failing, {}, ""),
    "its own iterator": (ItsOwnIterator, {}, ALONE),
    "notes its samples": (Logging, {}, ALONE),
    "finally": (Ending, {}, ALONE),
    "hands on": (Handing, {}, ALONE),
    "workers": (Asking, {"num_workers": 2}, "of which workers (2) read a part each"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_pass_is_as_of_the_plain_loader(name):
    make, options, expected = STREAMS[name]
    said = compared(make, **options)
    assert expected in said, said
    assert expected == KEPT or KEPT not in said, said


@pytest.mark.parametrize("name", ["plain", "texts and None", "a buffer", "draws", "an own random generator", "finally"])
def test_passes_that_are_broken_off(name):
    make, options, _ = STREAMS[name]
    compared(make, stop_at=6, passes=4, **options)


def test_passes_that_are_broken_off_once_batches_are_kept():
    def some(wrap):
        begin()
        loader, seen = wrap(DataLoader(Numbers(), 4)), []
        for number in range(7):
            most = None if number < 3 else number
            seen += [(batch, float(torch.rand(()))) for batch in itertools.islice(loader, most)]
        return seen, random_states(), loader

    plain, ours = some(untouched), some(flatout.compile_loader)
    assert same(ours[0], plain[0])
    assert undrawn(plain[1], ours[1])
    assert KEPT in flatout.explain(ours[2])


def test_a_stream_without_end_is_read_ahead():
    class Endless(Numbers):
        def __iter__(self):
            return map(self.sample, itertools.count())

    said = compared(Endless, stop_at=12)
    assert UNTOUCHED in said
    assert KEPT not in said


class Lines(IterableDataset):
    def __init__(self, name):
        self.name = name

    def __iter__(self):
        with open(self.name) as file:
            yield from map(float, file)


def test_a_file_that_is_written_between_two_passes_is_read_anew(tmp_path):
    def some(wrap):
        name = tmp_path / "lines.txt"
        name.write_text("\n".join(map(str, range(40))))
        begin()
        loader, seen = wrap(DataLoader(Lines(str(name)), 4)), []
        for number in range(9):
            if number == 4:
                with name.open("a") as file:
                    file.write("\n100\n101")
            seen += [(batch, float(torch.rand(()))) for batch in loader]
        return seen, random_states(), loader

    plain, ours = some(untouched), some(flatout.compile_loader)
    assert same(ours[0], plain[0])
    assert undrawn(plain[1], ours[1])
    assert KEPT in flatout.explain(ours[2])


class Scaled(Numbers):
    scale = 1.0

    def sample(self, number):
        return number * self.scale


def test_a_stream_that_is_changed_between_two_passes_is_read_anew():
    def some(wrap):
        begin()
        stream, seen = Scaled(), []
        loader = wrap(DataLoader(stream, 4))
        for number in range(9):
            if number == 4:
                stream.scale = 2.0
            seen += [(batch, float(torch.rand(()))) for batch in loader]
        return seen, loader

    plain, ours = some(untouched), some(flatout.compile_loader)
    assert same(ours[0], plain[0])
    assert KEPT in flatout.explain(ours[1])


def test_a_stream_that_is_changed_in_the_middle_of_a_kept_pass_stops_the_training():
    stream = Scaled()
    loader = flatout.compile_loader(DataLoader(stream, 4))
    for _ in range(3):
        list(loader)
    assert KEPT in flatout.explain(loader)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    stream.scale = 3.0
    with pytest.raises(ChangedTooLate, match="Scaled"):
        next(batches)


class Drifting(Numbers):
    """Gives something else from some time on, and nobody can see why."""

    def __init__(self, name, at):
        super().__init__()
        self.letters, self.at = [*name], at  # and no name, which would be followed

    def sample(self, number):
        return number + (0 if number < self.at else os.stat("".join(self.letters)).st_mtime_ns % 1000)


@pytest.mark.parametrize("at", [0, 20], ids=["from the first batch on", "later"])
def test_a_change_that_nobody_sees_is_found_and_reported(tmp_path, at):
    name = tmp_path / "time"
    name.write_text("")
    os.utime(name, ns=(0, 0))
    loader = flatout.compile_loader(DataLoader(Drifting(str(name), at), 4))
    for _ in range(4):
        list(loader)
    assert KEPT in flatout.explain(loader)
    os.utime(name, ns=(7, 7))
    with pytest.raises(ChangedTooLate, match="what the stream reads"):
        for _ in range(10):
            list(loader)


def test_two_loaders_over_one_stream():
    def some(wrap):
        begin()
        stream = Numbers()
        one, other = wrap(DataLoader(stream, 4)), wrap(DataLoader(stream, 5))
        return [(*pair, float(torch.rand(()))) for _ in range(5) for pair in zip(one, other, strict=False)]

    assert same(some(flatout.compile_loader), some(untouched))


def test_what_takes_more_memory_than_there_may_be_is_read_ahead():
    def compiled(loader):
        return flatout.compile_loader(loader, max_bytes=300)

    plain, _, _ = walk(Numbers, untouched)
    ours, _, loader = walk(Numbers, compiled)
    assert same(ours, plain)
    assert "more memory than the budget allows" in flatout.explain(loader)


def test_on_a_device_batches_are_copied():
    plain, _, _ = walk(Numbers, untouched)
    ours, _, loader = walk(Numbers, lambda loader: flatout.compile_loader(loader, device="cpu"))
    assert same(ours, plain)
    assert flatout.explain(loader).endswith("batches are copied to cpu")


def test_a_fix_leaves_streams_to_the_one_that_reads_them():
    caches = LoaderCaches()
    loader = DataLoader(Numbers(), 4)
    assert [len(list(caches.walk(loader, DataLoader.__iter__))) for _ in range(2)] == [10, 10]
    assert caches.of(loader).reason == "Numbers has no samples that can be read by index"


def test_what_was_not_read_yet_is_said():
    assert flatout.explain(flatout.compile_loader(DataLoader(Numbers(), 4))) == "a stream, not read yet"


@pytest.mark.parametrize("told", ["nothing", "the epoch"])
def test_a_stream_of_hugging_face_is_kept_where_nobody_tells_it_of_the_epoch(told):
    datasets = pytest.importorskip("datasets")

    def some(wrap):
        begin()
        rows = datasets.Dataset.from_dict({"x": [[each, each + 0.5] for each in range(40)]})
        stream, seen = rows.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=9).with_format("torch"), []
        loader = wrap(DataLoader(stream, 4))
        for number in range(6):
            if told == "the epoch":
                stream.set_epoch(number)
            seen += [(batch["x"].clone(), stream.state_dict(), float(torch.rand(()))) for batch in loader]
        return seen, random_states(), loader

    plain, ours = some(untouched), some(flatout.compile_loader)
    assert same(ours[0], plain[0])
    assert undrawn(plain[1], ours[1])
    assert (KEPT in flatout.explain(ours[2])) == (told == "nothing")


class SettingUp(Numbers):
    """Makes a generator for each pass, as it begins."""

    def __iter__(self):
        self.rng = random.Random(3)
        for number in range(self.length):
            yield number + self.rng.random()


def test_a_stream_that_sets_up_a_generator_as_it_begins():
    said = compared(SettingUp)
    assert UNTOUCHED in said
    assert KEPT not in said
