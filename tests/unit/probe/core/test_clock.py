"""Device time by events that are read later and never waited for."""

import pytest

from flatout.probe.core.clock import DeviceClock, now


class Device:
    """Passes events in order, as far as it is told to."""

    def __init__(self):
        self.recorded, self.passed, self.made = 0, 0, 0

    def event(self):
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, device):
        self.device, self.number = device, -1

    def record(self):
        self.device.recorded += 1
        self.number = self.device.recorded

    def query(self):
        return self.number <= self.device.passed

    def elapsed_time(self, end):
        assert self.query() and end.query(), "read before the device had passed it"
        return float(end.number - self.number)  # milliseconds


@pytest.fixture
def device():
    return Device()


def step(clock, number, phases=(0, 1, 2)):
    for phase in phases:
        clock.begin(phase)
        clock.finish()
    clock.step_done(number)


def test_the_host_clock_never_goes_back():
    assert now() <= now()


def test_steps_are_delivered_once_the_device_has_passed_them(device):
    delivered = []
    clock = DeviceClock(device.event, lambda *found: delivered.append(found))
    step(clock, 1)
    step(clock, 2)
    assert delivered == []
    device.passed = 6
    step(clock, 3)
    assert delivered == [(1, (1_000_000,) * 3)]
    device.passed = device.recorded
    step(clock, 4)
    assert [number for number, _ in delivered] == [1, 2, 3]


def test_several_spans_of_one_phase_add_up_and_absent_ones_are_zero(device):
    delivered = []
    clock = DeviceClock(device.event, lambda *found: delivered.append(found))
    device.passed = 10**9
    step(clock, 1, phases=(0, 0, 1))
    assert delivered == [(1, (2_000_000, 1_000_000, 0))]


def test_a_span_inside_another_ends_first(device):
    delivered = []
    clock = DeviceClock(device.event, lambda *found: delivered.append(found))
    device.passed = 10**9
    clock.begin(2)  # as a closure that an optimizer calls
    clock.begin(0)
    clock.finish()
    clock.finish()
    clock.step_done(1)
    assert delivered == [(1, (1_000_000, 0, 3_000_000))]


def test_an_end_without_a_beginning_is_nothing(device):
    delivered = []
    clock = DeviceClock(device.event, lambda *found: delivered.append(found))
    clock.finish()
    clock.step_done(1)
    assert delivered == [(1, (0, 0, 0))]


def test_a_device_far_behind_costs_bounded_memory(device):
    delivered = []
    clock = DeviceClock(device.event, lambda *found: delivered.append(found))
    for number in range(500):
        step(clock, number)
    assert delivered == []
    assert len(clock._waiting) <= clock.limit + 1
    device.passed = device.recorded
    step(clock, 500)
    device.passed = device.recorded
    step(clock, 501)
    assert [number for number, _ in delivered] == list(range(500 - clock.limit, 501))


def test_events_are_used_again(device):
    clock = DeviceClock(device.event, lambda *_: None)
    device.passed = 10**9
    for number in range(100):
        step(clock, number)
    assert device.made <= 12
