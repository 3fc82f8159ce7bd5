"""What the device did in the steps that are drawn: put on the host's clock, summed, and joined where it is too much."""

from itertools import pairwise
from time import perf_counter_ns, time_ns
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatout.probe.core.seams import Seams
from flatout.probe.system.device_trace import DEVICE, DeviceEvent, DeviceTrace, device_work, drawn
from flatout.schema.run import Span

STEPS = [Span(lane="steps", name=f"step {number}", start_ns=1000 * number, wall_ns=1000) for number in range(1, 4)]


class Recorded:
    """An event as Kineto gives it."""

    def __init__(self, name, start_ns, wall_ns, *, stream=7, device=torch.autograd.DeviceType.CUDA, annotation=False):
        self._values = (name, start_ns, wall_ns, stream, device, annotation)

    def name(self):
        return self._values[0]

    def start_ns(self):
        return self._values[1]

    def duration_ns(self):
        return self._values[2]

    def device_resource_id(self):
        return self._values[3]

    def device_type(self):
        return self._values[4]

    def is_user_annotation(self):
        return self._values[5]


class Profiler:
    """Stands for torch.profiler.profile on a machine with a device."""

    def __init__(self, events=(), fails=""):
        self.fails, self.started, self.stopped = fails, 0, 0
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))

    def start(self):
        if self.fails == "start":
            raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nand more")
        self.started += 1

    def stop(self):
        if self.fails == "stop":
            raise RuntimeError("no")
        self.stopped += 1


@pytest.fixture
def _cuda_in_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


@pytest.mark.usefixtures("_cuda_in_use")
def test_events_of_the_device_are_put_on_the_clock_of_the_steps():
    now, epoch = perf_counter_ns(), time_ns()
    profiler = Profiler(
        [
            Recorded("gemm", epoch + 5_000_000, 2_000_000),
            Recorded("cudaLaunchKernel", epoch, 10, device=torch.autograd.DeviceType.CPU),
            Recorded("step", epoch, 9_000_000, annotation=True),
            Recorded("Memcpy HtoD (Pageable -> Device)", epoch + 1_000_000, 1_000_000, stream=9),
        ]
    )
    trace = DeviceTrace(lambda: profiler)
    trace.start()
    trace.start()
    trace.stop()
    trace.stop()
    assert (profiler.started, profiler.stopped) == (1, 1)
    events = trace.within([Span(lane="steps", name="step 1", start_ns=now, wall_ns=10_000_000)])
    assert [(event.kind, event.stream, event.wall_ns) for event in events] == [
        ("copy to the device", 9, 1_000_000),
        ("kernel", 7, 2_000_000),
    ]
    assert [event.start_ns - now for event in events] == pytest.approx([1_000_000, 5_000_000], abs=900_000)


@pytest.mark.usefixtures("_cuda_in_use")
@pytest.mark.parametrize("fails", ["start", "stop"])
def test_a_profiler_that_fails_costs_its_rows_and_nothing_else(fails):
    trace = DeviceTrace(lambda: Profiler(fails=fails))
    trace.start()
    trace.stop()
    assert trace.within(STEPS) == []
    work = device_work([], STEPS, trace.reason)
    assert work.reason.startswith("RuntimeError: ") and "\n" not in work.reason


def test_nothing_is_recorded_where_no_device_is_in_use():
    profiler = Profiler()
    trace = DeviceTrace(lambda: profiler)
    trace.start()
    trace.stop()
    assert (profiler.started, device_work(trace.within(STEPS), STEPS)) == (0, None)


@pytest.mark.usefixtures("_cuda_in_use")
def test_a_script_that_profiles_itself_is_left_to_it():
    profiler = Profiler()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        DeviceTrace(lambda: profiler).start()
    assert profiler.started == 0


@pytest.fixture
def seams():
    made = Seams()
    yield made
    made.undo()


@pytest.mark.usefixtures("_cuda_in_use")
@pytest.mark.parametrize("when", ["before", "while recording"])
@pytest.mark.parametrize("make", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_a_script_that_will_profile_itself_is_left_to_it(seams, when, make):
    """One with a schedule is made long before it starts, and would fail if another were at work then."""
    profiler = Profiler([Recorded("gemm", time_ns(), 1000)])
    trace = DeviceTrace(lambda: profiler)
    trace.install(seams)
    if when == "before":
        make()
    trace.start()
    if when == "while recording":
        make()
    trace.start()
    trace.stop()
    assert profiler.started == profiler.stopped == (0 if when == "before" else 1)
    assert trace.within([Span(lane="steps", name="step 1", start_ns=0, wall_ns=2 * perf_counter_ns())]) == []
    assert "of its own" in trace.reason


@pytest.mark.usefixtures("_cuda_in_use")
def test_a_profiler_of_torch_s_that_we_make_is_not_taken_for_the_script_s(seams):
    trace = DeviceTrace(lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]))
    trace.install(seams)
    trace.start()
    torch.ones(3).add(1)
    trace.stop()
    assert trace.reason == ""


def test_the_time_that_the_device_was_busy_counts_once_what_ran_at_once():
    events = [
        DeviceEvent(7, "gemm", 900, 200),  # begun before the steps
        DeviceEvent(7, "gemm", 1200, 100),
        DeviceEvent(9, "Memcpy HtoD (Pinned -> Device)", 1250, 100),
        DeviceEvent(7, "relu", 3900, 500),  # ends after them
    ]
    work = device_work(events, STEPS)
    assert (work.num_steps, work.wall_s, work.num_kernels) == (3, pytest.approx(3e-6), 3)
    assert work.busy_s == pytest.approx(350e-9)
    assert work.seconds == pytest.approx({"kernel": 800e-9, "copy to the device": 100e-9})
    assert [(kernel.name, kernel.count) for kernel in work.longest] == [("relu", 1), ("gemm", 2)]


KINDS = ["gemm", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)"]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 50), st.integers(1, 50)), max_size=2500))
def test_what_is_drawn_covers_what_there_is_and_is_not_too_much(pieces):
    events, now = [], 0
    for name, gap, wall in pieces:
        events.append(DeviceEvent(7, name, now + gap, wall))
        now += gap + wall
    spans = drawn(events)
    changes = sum(one.kind != other.kind for one, other in pairwise(events))
    assert len(spans) <= max(600, changes + 1) and len(spans) <= len(events)
    assert {span.lane for span in spans} <= {DEVICE}
    for event in events:
        (over,) = [
            one for one in spans if one.start_ns <= event.start_ns and event.end_ns <= one.start_ns + one.wall_ns
        ]
        assert over.name == event.kind
    for one, following in pairwise(spans):
        assert one.start_ns + one.wall_ns <= following.start_ns


def test_every_stream_has_a_row_the_busiest_first():
    events = [DeviceEvent(9, "copy", 0, 1), DeviceEvent(7, "gemm", 0, 1), DeviceEvent(7, "gemm", 2, 1)]
    assert [span.lane for span in drawn(events)] == [DEVICE, DEVICE, "device, stream 9"]
