"""A stream that another process reads ahead: the same batches, errors, ends and random streams, or a reason.

Modules: flatout.torch_loader.streamed.streamed_loader, flatout.torch_loader.streamed.read_together.
"""

import functools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import numpy
import pytest
import torch
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, IterableDataset

from flatout.errors import ChangedTooLate
from flatout.watch.dataset_state import random_states, same, undrawn

pytestmark = pytest.mark.slow

SLOW_S = 0.0006


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch):
    """Take what another process reads on a busy machine, too, where it is slower than this one."""
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._LONGEST_WAIT", float("inf"))
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._LAG", 10_000)


def nothing():
    return 0.0


class Stream(IterableDataset):
    """Samples that take a moment each."""

    def __init__(self, length=80, draw=nothing):
        self.length, self.draw = length, draw

    def __iter__(self):
        for number in range(self.length):
            time.sleep(SLOW_S)
            yield torch.arange(6.0) * number + self.draw(), number


def begin():
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def both(walk, *, stands_back="", **settings):
    """Return how many batches came from another process, of a walk that is the same with and without it."""
    begin()
    plain, states = walk(), random_states()
    with under("loader-workers", **{"workers": 2} | settings) as process:
        begin()
        ours = walk()
        assert undrawn(states, random_states())
        assert same(ours, plain)
        assert not process.site.failure
        assert stands_back in process.site.stood_back
        assert bool(stands_back) == bool(process.site.stood_back)
        return process.site.hits.get("DataLoader", 0)


def step(took_s=0.004):
    """Train for a moment, so that the other process can catch up."""
    time.sleep(took_s)
    return float(torch.rand(()))


def passes(loader, epochs=3, stop_at=None):
    seen = []
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            seen.append((batch, step()))
            if number == stop_at:
                break
    return seen


def draw_all():
    return random.random() + float(numpy.random.rand())


def rejecting():
    return float(random.randint(0, 9)) + random.gauss(0, 1)


class Shuffled(Stream):
    """A buffer that samples are drawn from, as the shuffling of most libraries has."""

    def __iter__(self):
        buffer = []
        for sample in super().__iter__():
            buffer.append(sample)
            if len(buffer) > 10:
                yield buffer.pop(random.randrange(len(buffer)))
        random.shuffle(buffer)
        yield from buffer


class Seeded(Stream):
    """A generator of its own for each pass, seeded by the epoch that the script says."""

    epoch = 0

    def __iter__(self):
        rng = numpy.random.default_rng(self.epoch)
        for x, number in super().__iter__():
            yield x + rng.normal(), number


class Holding(Stream):
    """A generator that goes on from pass to pass."""

    def __init__(self):
        super().__init__()
        self.rng = random.Random(3)

    def __iter__(self):
        for x, number in super().__iter__():
            yield x + self.rng.random(), number


class Beginning(Stream):
    """Counts its passes, and makes a generator for each, when it begins."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        self.rng = random.Random(self.passes)
        for x, number in super().__iter__():
            yield x + self.rng.random() + self.passes, number


class Eager(Stream):
    """Draws as `iter()` is called, and not as the first sample is asked for."""

    def __iter__(self):
        order = list(range(self.length))
        random.shuffle(order)
        return map(self.sample, order)

    def sample(self, number):
        time.sleep(SLOW_S)
        return torch.ones(3) * number


@pytest.mark.parametrize(
    "dataset",
    [
        Stream,
        functools.partial(Stream, draw=draw_all),
        functools.partial(Stream, draw=rejecting),
        functools.partial(Stream, 83, draw=draw_all),
        Shuffled,
        Seeded,
        Holding,
        Beginning,
        Eager,
    ],
    ids=["plain", "draws", "rejects", "odd end", "shuffles", "seeded", "holds a generator", "begins", "eager"],
)
def test_batches_are_read_ahead_and_every_stream_is_as_ever(dataset):
    def walk():
        stream = dataset()
        seen = passes(DataLoader(stream, 4))
        rng = getattr(stream, "rng", None)
        return seen, None if rng is None else rng.random(), getattr(stream, "passes", 0)

    assert both(walk) > 20


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 6, "collate_fn": list},
        {"batch_size": 5, "generator": torch.Generator()},
        {"batch_size": 5, "worker_init_fn": print},
    ],
)
def test_whatever_a_batch_is(options, monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._WORTH_S", 0)
    assert both(lambda: passes(DataLoader(Stream(60, draw_all), **options), 2)) > 5


def test_a_step_that_draws_another_number_each_time_from_a_stream_that_samples_do_not_draw_from():
    def walk():
        seen = []
        for number, batch in enumerate(DataLoader(Stream(120, random.random), 4)):
            seen.append((batch, torch.rand(number % 7).tolist(), step()))
        return seen

    assert both(walk) > 10


def test_a_step_that_draws_another_number_each_time_from_the_same_stream():
    def walk():
        seen, loader = [], DataLoader(Stream(60, random.random), 4)
        for epoch in range(6):
            for number, batch in enumerate(loader):
                seen.append((batch, [random.random() for _ in range((number + epoch) % 5)], step()))
        return seen

    both(walk, stands_back="draws from a random stream that steps draw from, too, another number each time")


def test_a_step_that_draws_something_besides_now_and_then():
    def walk():
        seen = []
        for number, batch in enumerate(DataLoader(Stream(120, random.random), 4)):
            seen.append((batch, step()))
            if number % 13 == 12:
                seen.append(random.sample(range(100), 7))
        return seen

    assert both(walk) > 3


def test_passes_that_are_broken_off_leave_the_streams_where_the_script_does():
    assert both(lambda: passes(DataLoader(Stream(draw=draw_all), 4), epochs=4, stop_at=7)) > 8


def test_a_stream_without_end():
    class Endless(IterableDataset):
        def __iter__(self):
            while True:
                time.sleep(SLOW_S)
                yield torch.rand(3) + random.random()

    assert both(lambda: passes(DataLoader(Endless(), 4), epochs=2, stop_at=25)) > 20


def test_an_error_of_the_stream_comes_at_its_batch_and_the_stream_is_over():
    class Failing(Stream):
        def __iter__(self):
            for x, number in super().__iter__():
                if number == 43:
                    raise KeyError("sample 43")
                yield x + random.random(), number

    def walk():
        seen, batches = [], iter(DataLoader(Failing(), 4))
        while True:
            try:
                seen.append((next(batches), step()))
            except KeyError as error:
                seen.append((*error.args, repr(error.__context__)))
            except StopIteration:
                return seen

    assert both(walk) > 2


class Stubborn:
    """Goes on after an error."""

    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        time.sleep(SLOW_S)
        if self.number % 23 == 0:
            raise OSError("not now")
        if self.number > 100:
            raise StopIteration
        return torch.ones(2) * self.number + random.random()


class Reading(IterableDataset):
    def __iter__(self):
        return Stubborn()


def test_an_iterator_that_goes_on_after_an_error():
    def walk():
        seen, batches = [], iter(DataLoader(Reading(), 3))
        while True:
            try:
                seen.append((next(batches), step()))
            except OSError as error:
                seen.append(error.args)
            except StopIteration:
                return seen

    assert both(walk) > 2


def test_two_loaders_side_by_side_draw_in_turn():
    def walk():
        one, other = DataLoader(Stream(draw=random.random), 4), DataLoader(Seeded(60), 4)
        return [(*pair, step()) for _ in range(3) for pair in zip(one, other, strict=False)]

    assert both(walk) > 20


def test_a_second_pass_that_begins_before_the_first_one_ends():
    def walk():
        batches = DataLoader(Stream(draw=random.random), 4)
        first, second = iter(batches), iter(batches)
        seen = [(next(first), step()) for _ in range(8)]
        for _ in range(4):
            seen += [(next(second), next(first), step())]
        return [*seen, *second, *first, *batches]

    assert both(walk) > 3


def test_the_end_may_be_asked_for_again():
    def walk():
        batches = iter(DataLoader(Stream(draw=random.random), 4))
        seen = [(batch, step()) for batch in batches]
        return [*seen, next(batches, None), next(batches, None), next(batches, None)]

    assert both(walk) > 8


def test_a_stream_that_is_told_of_the_epoch():
    def walk():
        stream, seen = Seeded(), []
        loader = DataLoader(stream, 4)
        for epoch in range(4):
            stream.epoch = epoch
            seen += passes(loader, 1)
        return seen

    assert both(walk) > 20


def test_a_stream_that_the_step_changes_from_the_first_pass_on_is_left_alone():
    class Scaled(Stream):
        scale = 1.0

        def __iter__(self):
            for x, number in super().__iter__():
                yield x * self.scale, number

    def walk():
        stream, seen = Scaled(), []
        for _ in range(2):
            for number, batch in enumerate(DataLoader(stream, 4)):
                seen.append((batch, step()))
                stream.scale = float(number)
        return seen

    assert both(walk, stands_back="changes while it is walked") == 0


def test_a_stream_that_is_changed_after_batches_were_read_ahead_stops_the_training():
    class Scaled(Stream):
        scale = 1.0

        def __iter__(self):
            for x, number in super().__iter__():
                yield x * self.scale, number

    stream = Scaled(200)
    with under("loader-workers", workers=2) as process:
        begin()
        with pytest.raises(ChangedTooLate, match="Scaled"):
            for _ in DataLoader(stream, 4):
                step()
                if process.site.hits.get("DataLoader", 0) > 3:
                    stream.scale = 3.0


class Counting(Stream):
    calls = 0

    def __iter__(self):
        for sample in super().__iter__():
            self.calls += 1
            yield sample


class CountingLate(Stream):
    passes = 0

    def __iter__(self):
        yield from super().__iter__()
        self.passes += 1


class Printing(Stream):
    def __iter__(self):
        for x, number in super().__iter__():
            if number == 50:
                print("half of it", flush=True)
            yield x, number


class Logging(Stream):
    def __iter__(self):
        for sample in super().__iter__():
            with open(f"{tempfile.gettempdir()}/flatout_streams.log", "a") as file:
                file.write("x")
            yield sample


class Bound:
    """Stays in its process."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        raise TypeError("stays here")


class OfBound(Stream):
    def __iter__(self):
        return map(Bound, range(40))


class Views(Stream):
    def __iter__(self):
        whole = torch.arange(80.0)
        return (whole[number : number + 2] for number in range(40))


class Own(Stream):
    def __init__(self):
        super().__init__()
        self.samples = iter(super().__iter__())

    def __iter__(self):
        return self.samples


def unrepeatable(rng):
    return rng.random() * 0


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: DataLoader(Counting(), 4), "changes while it is read: Counting.calls"),
        (lambda: DataLoader(CountingLate(), 4), "changes while it is read: CountingLate.passes"),
        (lambda: DataLoader(Printing(), 4), "prints"),
        (lambda: DataLoader(Logging(), 4), "writes to"),
        (lambda: DataLoader(Own(), 4), "iterator"),
        (lambda: DataLoader(OfBound(), 4, collate_fn=list), "cannot be compared"),
        (lambda: DataLoader(Views(), None), "parts of larger memory"),
        (lambda: DataLoader(Stream(draw=functools.partial(unrepeatable, random.SystemRandom())), 4), "system's"),
        (lambda: DataLoader(Stream(60), 1), "less than handing it over is worth"),
        (lambda: DataLoader(Stream(), 4, num_workers=1), "workers (1) read a part each"),
    ],
)
def test_what_another_process_may_not_read_stays_here_and_the_reason_is_said(make, reason, monkeypatch):
    if "less" in reason:
        monkeypatch.setattr("flatout.torch_loader.streamed.stream_pass._WORTH_S", 10.0)
    both(lambda: passes(make(), epochs=2), stands_back=reason)


def test_what_is_printed_is_printed_once(capfd):
    with under("loader-workers", workers=2):
        passes(DataLoader(Printing(), 4), epochs=2)
    assert capfd.readouterr().out.count("half of it") == 2


def test_files_are_read_where_the_script_reads_them(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(map(str, range(4_000))))

    class Lines(IterableDataset):
        def __iter__(self):
            with open(tmp_path / "lines.txt") as file:
                for line in file:
                    time.sleep(SLOW_S / 10)
                    yield torch.ones(3) * int(line) + random.random()

    assert both(lambda: passes(DataLoader(Lines(), 50), 2)) > 50


def test_a_process_that_is_killed_costs_time_and_nothing_else():
    def walk():
        seen = []
        for number, batch in enumerate(batch for _ in range(2) for batch in DataLoader(Stream(120, random.random), 4)):
            seen.append((batch, step()))
            if number == 15:
                for each in multiprocessing.active_children():
                    os.kill(each.pid, signal.SIGKILL)
        return seen

    assert both(walk) > 4


def test_a_process_that_stands_still_is_given_up(monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._HANG_S", 0.5)
    monkeypatch.setattr("flatout.torch_loader.streamed.streamed_loader._HANG_TIMES", 0)

    def walk():
        seen = []
        for number, batch in enumerate(DataLoader(Stream(120, random.random), 4)):
            seen.append((batch, step()))
            if number == 15:
                for each in multiprocessing.active_children():
                    os.kill(each.pid, signal.SIGSTOP)
        return seen

    assert both(walk) > 1
    assert not multiprocessing.active_children()


def test_no_process_is_left_when_a_pass_is_over_or_broken_off():
    with under("loader-workers", workers=2) as process:
        loader = DataLoader(Stream(), 4)
        passes(loader, 2)
        assert process.site.hits["DataLoader"] > 0
        assert not multiprocessing.active_children()
        batches = iter(loader)
        next(batches)
        assert multiprocessing.active_children()
        del batches
        assert not multiprocessing.active_children()


def test_what_became_of_the_loader_is_said():
    with under("loader-workers", workers=2) as process:
        passes(DataLoader(Stream(), 4), 2)
        (account,) = process.site.loaders()
        assert (account.dataset, account.passes, account.asked) == ("Stream", 2, 40)
        assert 0 < account.made == process.site.hits["DataLoader"]


SCRIPT = """
    import multiprocessing, os, random, signal, sys, time
    from tests.unit.fixes.training import under
    from tests.unit.torch_loader.streamed.test_stream_pass import Stream
    from torch.utils.data import DataLoader

    with under("loader-workers", workers=2):
        for number, batch in enumerate(DataLoader(Stream(2000, random.random), 4)):
            time.sleep(0.004)
            if number == 7:
                print(*(each.pid for each in multiprocessing.active_children()), flush=True)
                {end}
"""


@pytest.mark.parametrize(
    "end", ["sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise KeyboardInterrupt"]
)
def test_the_process_ends_with_the_script_however_that_ends(end):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(end=end)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    (reader,) = map(int, done.stdout.split())
    until = time.monotonic() + 10
    while _is_alive(reader):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
