"""What waits for an optimizer's step: the next batch of a device, and when it is not waited for."""

import gc
import threading
import weakref

import torch
from tests.unit.pipeline.test_device import RESIZED, Apart
from tests.unit.pipeline.test_maker import Pictures
from torch.utils.data import DataLoader

from flatout.pipeline import compile_loader, compiled, device_pass
from flatout.pipeline.after_step import AfterStep
from flatout.pipeline.ahead import Ahead
from flatout.pipeline.dataset_state import same


def optimizer():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    return torch.optim.SGD([parameter], lr=0.1)


def ahead(log, number=9, after=None):
    numbers = iter(range(number))

    def take():
        taken = next(numbers)
        log.append(f"begin {taken}")
        return taken

    return Ahead(take, lambda: True, after)


def steps(walked, log, number, step=lambda: None):
    for _ in range(number):
        log.append(f"got {walked.next()}")
        step()
        log.append("stepped")


def test_the_next_one_is_begun_before_the_one_before_it_is_given_where_nothing_steps():
    log = []
    steps(ahead(log, after=AfterStep()), log, 3)
    assert log[:4] == ["begin 0", "begin 1", "got 0", "stepped"]
    assert log[4:6] == ["begin 2", "got 1"]


def test_the_next_one_is_begun_after_the_step_once_an_optimizer_steps_each_time():
    log = []
    steps(ahead(log, after=AfterStep()), log, 5, optimizer().step)
    assert log[-6:] == ["got 3", "begin 4", "stepped", "got 4", "begin 5", "stepped"]


def test_accumulated_gradients_are_not_waited_for():
    log, steps_of, count = [], optimizer().step, iter(range(100))

    def every_other():
        if next(count) % 2:
            steps_of()

    steps(ahead(log, after=AfterStep()), log, 6, every_other)
    assert log[-2:] == ["got 5", "stepped"]
    assert log[-3] == "begin 6"


def test_what_was_put_off_and_never_done_is_begun_when_it_is_asked_for():
    log, after = [], AfterStep()
    walked, step = ahead(log, after=after), optimizer().step
    steps(walked, log, 4, step)
    steps(walked, log, 2)  # a validation, say
    assert log[-6:] == ["got 4", "stepped", "begin 5", "begin 6", "got 5", "stepped"]
    steps(walked, log, 3)
    assert [line for line in log if line.startswith("got")] == [f"got {number}" for number in range(9)]


def test_a_step_in_another_thread_begins_nothing():
    log, after = [], AfterStep()
    walked, step = ahead(log, after=after), optimizer().step
    steps(walked, log, 4, step)
    walked.next()
    before = list(log)
    other = threading.Thread(target=step)
    other.start()
    other.join()
    assert log == before


def test_an_error_and_the_end_come_at_their_turn():
    log = []
    walked = ahead(log, 5, AfterStep())
    steps(walked, log, 5, optimizer().step)
    for _ in range(2):
        try:
            walked.next()
        except StopIteration:
            log.append("end")
    assert log[-2:] == ["stepped", "end"] or log[-2:] == ["end", "end"]


def test_what_waits_is_gone_with_who_asked_for_it():
    walked = ahead([], after=AfterStep())
    steps(walked, [], 4, optimizer().step)
    gone = weakref.ref(walked)
    gc.disable()
    try:
        del walked
        assert gone() is None
    finally:
        gc.enable()
    optimizer().step()


def test_batches_are_those_of_the_plain_loader_whether_a_step_is_waited_for_or_not(monkeypatch):
    monkeypatch.setattr(compiled, "Device", Apart)
    monkeypatch.setattr(device_pass, "_after_step", lambda device: AfterStep())
    plain, step = DataLoader(Pictures(RESIZED), 7, shuffle=True), optimizer().step

    def seen(loader):
        torch.manual_seed(0)
        found = []
        for number in range(4):
            for batch in loader:
                found.append((batch, torch.rand(2)))
                if number % 2:
                    step()
        return found

    assert same(seen(compile_loader(plain, device="cpu")), seen(plain))
