"""Random samples from worker processes where something goes wrong, ends early or overlaps: the same bits, no hang.

Modules: flatout.torch_loader.predicted.predicted_loader.
"""

import functools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest
import torch
from tests.unit.fixes.inputs import Counting, Drawing, OwnGenerator, Rows, passes
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from flatout.watch.dataset_state import random_states, same, undrawn

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch):
    """Take what workers make on a busy machine, too, where they are slower than this process."""
    monkeypatch.setattr("flatout.torch_loader.predicted.backoff._LONGEST_WAIT", float("inf"))


def begin():
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def both(walk, *, workers=2, stands_back="", **settings):
    """Return the hits of a walk that is the same, streams included, plain and with predicted batches."""
    begin()
    plain, states = walk(), random_states()
    with under("loader-workers", workers=workers, **settings) as process:
        begin()
        ours = walk()
        assert undrawn(states, random_states())
        assert same(ours, plain)
        assert not process.site.failure
        assert (stands_back or "") in process.site.stood_back
        assert stands_back is None or bool(stands_back) == bool(process.site.stood_back)
        return process.site.hits.get("DataLoader", 0)


def loader(dataset=Drawing, size=4, **options):
    return DataLoader(dataset(), size, **{"shuffle": True} | options)


def draw_all():
    return float(torch.rand(())) + random.random() + numpy.random.rand()


All = functools.partial(Drawing, draw=draw_all)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("dataset", [All, OwnGenerator, functools.partial(Drawing, draw=random.gauss)])
def test_random_samples_come_from_workers_and_every_stream_is_as_ever(dataset, workers):
    assert both(lambda: passes(loader(dataset)), workers=workers) >= 12


def test_passes_that_are_broken_off_leave_the_streams_where_the_script_does():
    assert both(lambda: passes(loader(All), epochs=4, stop_at=7)) > 8


def test_an_error_of_a_sample_comes_at_its_batch_and_the_script_may_go_on():
    class Failing(Drawing):
        def __getitem__(self, index):
            if index == 27:
                raise KeyError("sample 27")
            return super().__getitem__(index)

    def walk():
        seen, batches = [], iter(loader(Failing, shuffle=False))
        while True:
            try:
                seen.append(next(batches))
            except KeyError as error:
                seen.append((*error.args, repr(error.__context__)))
            except StopIteration:
                return seen

    assert both(walk) >= 2


def test_an_error_in_the_loop_ends_the_pass_and_another_one_begins():
    def walk():
        seen, batches = [], loader(All)
        for stop in (6, 2, 9):
            try:
                for number, batch in enumerate(batches):
                    seen.append(batch)
                    if number == stop:
                        raise ValueError
            except ValueError:
                seen.append(random.random())
        return seen

    assert both(walk) > 6


def test_two_loaders_side_by_side_draw_in_turn():
    def walk():
        one, other = loader(All), loader(OwnGenerator, 5)
        return [(*pair, float(torch.rand(()))) for _ in range(3) for pair in zip(one, other, strict=False)]

    assert both(walk) > 20


def test_a_loader_inside_the_loop_of_another():
    def walk():
        outer, inner = loader(All), loader(lambda: Drawing(24))
        return [(batch, [*inner]) for _ in range(2) for batch in outer]

    assert both(walk) > 20


def test_a_second_pass_that_begins_before_the_first_one_ends():
    def walk():
        batches = loader(All)
        first, second = iter(batches), iter(batches)
        seen = [next(first) for _ in range(6)]
        for _ in range(4):
            seen += [next(second), next(first)]
        return [*seen, *second, *batches]

    assert both(walk) > 6


def test_a_stream_that_the_script_seeds_in_the_middle_of_a_pass():
    def walk():
        seen = []
        for epoch in range(3):
            for number, batch in enumerate(loader(All)):
                seen.append(batch)
                if number == 5:
                    torch.manual_seed(epoch)
                    random.seed(epoch)
        return seen

    both(walk)


def test_a_step_that_draws_another_number_each_time_ends_it_for_a_while():
    def walk():
        seen = []
        for number, batch in enumerate(batch for _ in range(4) for batch in loader(All)):
            seen.append((batch, torch.rand(number % 7).tolist()))
        return seen

    assert both(walk) < 8


def test_a_data_set_that_the_script_changes_between_passes_and_within_one():
    class Scaled(Drawing):
        scale = 1.0

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x * self.scale, y

    def walk():
        batches, seen = loader(Scaled), []
        for epoch in range(4):
            batches.dataset.scale = float(epoch)
            for number, batch in enumerate(batches):
                seen.append(batch)
                if epoch == 2 and number == 6:
                    batches.dataset.scale = 0.5
        return seen

    assert both(walk, stands_back=None) > 3  # looking anew for each pass may be too dear on a busy machine


def test_a_generator_that_is_made_anew_for_each_pass():
    def walk():
        batches, seen = loader(OwnGenerator), []
        for epoch in range(3):
            batches.dataset.rng = random.Random(epoch)
            seen += [*batches]
        return seen

    assert both(walk, stands_back=None) > 3


def test_a_generator_that_the_sampler_draws_from_too():
    class Shared(Rows):
        def __init__(self):
            super().__init__()
            self.rng = torch.Generator().manual_seed(3)

        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + torch.rand((), generator=self.rng), y

    def walk():
        dataset = Shared()
        sampler = RandomSampler(dataset, generator=dataset.rng)
        batches = DataLoader(dataset, 4, sampler=sampler)
        return [[*batches] for _ in range(2)], dataset.rng.get_state()

    assert both(walk, stands_back="draws from the generator that its sampler draws from") == 0


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(torch.rand(40, 3))


class Logging(Drawing):
    def __getitem__(self, index):
        with open(os.devnull, "a") as file:
            file.write("x")
        return super().__getitem__(index)


class Counted(Drawing):
    calls = 0

    def __getitem__(self, index):
        self.calls += 1
        return super().__getitem__(index)


def unrepeatable(rng):
    return rng.random() * 0


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: DataLoader(Streamed(), 2, num_workers=1), "reads a stream, of which workers (1) read a part"),
        (lambda: loader(Counted), "changes while it is read"),
        (lambda: loader(Counting), "changes while it is read"),
        (lambda: loader(lambda: Drawing(draw=functools.partial(unrepeatable, random.SystemRandom()))), "system's"),
        (lambda: loader(lambda: Drawing(draw=lambda: cv2.randu(0) if cv2 else random.random())), "OpenCV"),  # noqa: F821
    ],
)
def test_what_cannot_be_told_to_other_processes_stays_here_and_the_reason_is_said(make, reason):
    globals()["cv2"] = None
    both(lambda: passes(make(), epochs=2), stands_back=reason)


def test_a_worker_that_is_killed_costs_time_and_nothing_else():
    def walk():
        seen = []
        for number, batch in enumerate(batch for _ in range(3) for batch in loader(All)):
            seen.append(batch)
            if number in (6, 15):
                for each in multiprocessing.active_children():
                    os.kill(each.pid, signal.SIGKILL)
        return seen

    assert both(walk) > 4


def test_a_worker_that_stands_still_is_given_up(monkeypatch):
    monkeypatch.setattr("flatout.torch_loader.predicted.predicted_loader._HANG_S", 0.5)
    monkeypatch.setattr("flatout.torch_loader.predicted.predicted_loader._HANG_TIMES", 0)

    def walk():
        seen = []
        for number, batch in enumerate(loader(All)):
            seen.append(batch)
            if number == 6:
                for each in multiprocessing.active_children():
                    os.kill(each.pid, signal.SIGSTOP)
        return seen

    assert both(walk) >= 1
    assert not multiprocessing.active_children()


def test_workers_end_with_the_loader():
    with under("loader-workers", workers=2) as process:
        begin()
        batches = loader(All)
        assert len([*batches]) == 10
        assert process.site.hits["DataLoader"] > 0
        assert multiprocessing.active_children()
        del batches
        assert not multiprocessing.active_children()


SCRIPT = """
    import multiprocessing, os, random, signal, sys
    from tests.unit.fixes.inputs import Drawing
    from tests.unit.fixes.training import under
    from torch.utils.data import DataLoader

    with under("loader-workers", workers=2):
        for number, batch in enumerate(DataLoader(Drawing(draw=random.random), 4)):
            if number == 7:
                print(*(each.pid for each in multiprocessing.active_children()), flush=True)
                {end}
"""


@pytest.mark.parametrize(
    "end", ["sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise KeyboardInterrupt"]
)
def test_workers_end_with_the_process_however_that_ends(end):
    script = textwrap.dedent(SCRIPT).format(end=end)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    workers = [int(each) for each in done.stdout.split()]
    assert len(workers) == 2
    until = time.monotonic() + 10
    while any(map(_is_alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
