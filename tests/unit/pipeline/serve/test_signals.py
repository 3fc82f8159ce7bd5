"""What a handler of a signal raises reaches the script, whatever was asked for when the signal came."""

import contextlib
import functools
import gc
import os
import signal

import pytest
import torch
from tests.unit.pipeline import unseen
from torch.utils.data import DataLoader, Dataset, TensorDataset

from flatout.pipeline import compile_loader
from flatout.watch.script_signals import any_but_signals


class TimeUp(Exception):
    pass


class Handler:
    def __call__(self, *_):
        raise TimeUp

    def method(self, *_):
        raise TimeUp


def end(*_):
    raise TimeUp


@pytest.fixture
def no_collector():
    """Let no signal meet what the collector calls, or other tests' workers as they end: there it is nobody's."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(params=["function", "method", "object", "partial"])
def handled(request):
    handlers = {"function": end, "method": Handler().method, "object": Handler(), "partial": functools.partial(end, 1)}
    before = signal.signal(signal.SIGUSR2, handlers[request.param])
    yield
    signal.signal(signal.SIGUSR2, before)


class Squares(Dataset):
    """Counts how often a sample is asked for in this process; a signal comes with one of these."""

    def __init__(self, number, draws=False, signalled_at=-1):
        self.number, self.draws, self.noted = number, draws, unseen.tally()
        unseen.count(self.noted, 1, signalled_at)

    @property
    def asked(self):
        return unseen.value(self.noted)

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        unseen.count(self.noted)
        if unseen.value(self.noted) == unseen.value(self.noted, 1):
            os.kill(os.getpid(), signal.SIGUSR2)
        return torch.full((3,), float(index)) + (torch.rand(3) if self.draws else 0.0)


def collate(samples):
    return torch.stack(samples)


def heard(number_asked, draws, collate_fn, passes=3):
    """Return how often the script hears of the signal that comes with the n-th question, and how many there were."""
    times, made, dataset = 0, None, Squares(20, draws, number_asked)
    loader = DataLoader(dataset, batch_size=4, collate_fn=collate_fn)
    for _ in range(passes):
        try:
            made = made or compile_loader(loader)
            for batch in made:
                assert len(batch) == 4
        except TimeUp:
            times += 1
    return times, dataset.asked


@pytest.mark.parametrize(
    ("handled", "draws", "collate_fn"),
    [
        ("function", False, None),
        ("method", True, None),
        ("object", False, collate),
        ("partial", True, collate),
    ],
    indirect=["handled"],
)
@pytest.mark.full
def test_a_signal_is_heard_once_whenever_it_comes(handled, draws, collate_fn):
    _, number = heard(-1, draws, collate_fn)
    assert number > 20
    found = [heard(at, draws, collate_fn) for at in range(1, number + 1)]
    assert all(times == (asked >= at) for at, (times, asked) in enumerate(found, 1)), found
    assert sum(times for times, _ in found) >= 20


@pytest.mark.parametrize("handled", ["function"], indirect=True)
@pytest.mark.slow
def test_batches_after_it_are_those_of_the_plain_loader(handled):
    _, number = heard(-1, False, None)
    for at in range(1, number + 1):
        loader, made = DataLoader(Squares(20, signalled_at=at), batch_size=4), None
        with contextlib.suppress(TimeUp):
            made = compile_loader(loader)
            for _ in range(3):
                list(made)
        made = made or compile_loader(loader)
        assert all(torch.equal(one, other) for one, other in zip(made, loader, strict=True))


def test_other_errors_are_caught(handled):
    def fails():
        raise TimeUp  # by no handler

    try:
        fails()
    except any_but_signals() as error:
        assert isinstance(error, TimeUp)


def test_an_error_of_a_function_that_is_also_a_handler_is_caught_where_no_signal_came(handled):
    def wrapped(*_):
        raise TimeUp

    signal.signal(signal.SIGUSR2, wrapped)
    try:
        wrapped([1, 2])
    except any_but_signals() as error:
        assert isinstance(error, TimeUp)


def test_of_some_kinds_others_pass():
    with pytest.raises(KeyError):
        try:
            raise KeyError
        except any_but_signals(OSError, ValueError):
            pass


@pytest.mark.few(1)
@pytest.mark.slow
def test_torch_computes_on_as_many_threads_and_draws_from_its_stream_after_any_signal(
    two_threads, handled, no_collector
):
    made, before = compile_loader(DataLoader(Squares(4000), batch_size=4)), torch.get_rng_state()
    list(made), list(made)
    assert made.explain().startswith("4000 samples kept")
    alarmed = signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGUSR2))
    for turn in range(150):
        with contextlib.suppress(TimeUp):
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + turn * 1e-5)
            list(made)
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert torch.get_num_threads() == 2
    signal.signal(signal.SIGALRM, alarmed)
    torch.set_rng_state(before)


@pytest.mark.slow
def test_no_batch_comes_under_another_ones_name_after_signals_at_any_time(two_threads, no_collector):
    signalled = 0

    def end(*_):
        raise TimeUp

    made, alarmed = compile_loader(DataLoader(Squares(4000), batch_size=4)), signal.signal(signal.SIGALRM, end)
    list(made), list(made)
    assert made.explain().startswith("4000 samples kept")
    try:
        for turn in range(150):
            walked, numbers, armed, ended = iter(made), [], False, False
            while not ended:
                try:
                    if not armed:
                        armed = True
                        signal.setitimer(signal.ITIMER_REAL, 0.0001 + turn * 1e-5)
                    while True:
                        numbers += next(walked)[:, 0].tolist()
                except StopIteration:
                    ended = True
                except TimeUp:
                    signalled += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert numbers == sorted(set(numbers)) and len(numbers) >= 3992, turn
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarmed)
    assert signalled > 20


def test_a_pass_whose_order_is_drawn_while_a_signal_comes_is_whole(handled, monkeypatch):
    """Batches are made one by one where they lie in the data set's own arrays."""
    numbers = torch.arange(20.0)
    made, draw, asked = (
        compile_loader(DataLoader(TensorDataset(numbers), batch_size=4, shuffle=True)),
        torch.randperm,
        [],
    )
    assert [len(list(made)) for _ in range(2)] == [5, 5]

    def drawn(*args, **kwargs):
        asked.append(1)
        if len(asked) == 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        return draw(*args, **kwargs)

    walked = iter(made)
    monkeypatch.setattr(torch, "randperm", drawn)
    with pytest.raises(TimeUp):
        next(walked)
    assert sorted(torch.cat([batch for (batch,) in walked]).tolist()) == numbers.tolist()
