"""Some steps as they ran, as rows for the template."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import MS, drawn, ordinary

from flatout.report.html.timeline import MOST_WORKERS, timeline
from flatout.schema.run import Causes, DeviceKernel, DeviceWork, Span


def of(*spans, work=None):
    return timeline(replace(ordinary().run, causes=Causes(timeline=spans, device_work=work)))


def span(lane, name, start, wall):
    return Span(lane=lane, name=name, start_ns=start * MS, wall_ns=wall * MS)


STEP = span("steps", "step 7", 0, 100)


@pytest.mark.parametrize("spans", [(), (span("worker 0", "sample", 0, 10),), (span("steps", "step 1", -10, 10),)])
def test_without_steps_nothing_is_drawn(spans):
    assert of(*spans) is None
    assert timeline(ordinary().run) is None


def test_rows_are_in_the_order_of_the_recording_on_one_clock():
    found = timeline(drawn(workers=2).run)
    assert [row["name"] for row in found["rows"]] == ["steps", "training thread", "worker 0", "worker 1"]
    assert (found["steps"], found["ms"], found["left_out"]) == (2, "160 ms", 0)


def test_a_span_is_cut_where_the_picture_ends_and_told_whole():
    found = of(STEP, span("worker 0", "sample", -50, 75), span("worker 0", "sample", 90, 50))
    (left, width), (other_left, other_width) = [part[1:3] for part in found["rows"][1]["parts"]]
    assert (left, width) == ("0.000%", "25.000%")
    assert (other_left, other_width) == ("90.000%", "10.000%")
    assert found["rows"][1]["parts"][0][4] == "sample 75.0 ms"
    assert found["rows"][1]["told"] == "worker 0: sample 35.0 ms"


def test_what_lies_outside_is_left_out_and_its_row_stays():
    found = of(STEP, span("worker 0", "sample", -50, 50), span("worker 1", "sample", 100, 5))
    assert [(row["parts"], row["told"]) for row in found["rows"][1:]] == [
        ([], "worker 0: nothing"),
        ([], "worker 1: nothing"),
    ]


def test_steps_take_turns_and_names_have_kinds():
    found = of(
        STEP, span("steps", "step 8", 100, 100), span("device", "copy to the host", 0, 10), span("device", "odd", 10, 1)
    )
    assert [part[0] for part in found["rows"][0]["parts"]] == ["step0", "step1"]
    assert [part[3] for part in found["rows"][0]["parts"]] == ["step 7", "step 8"]
    assert found["key"] == [("sync", "copy to the host"), ("other", "odd")]


def test_of_many_workers_some_are_drawn_and_the_rest_counted():
    workers = [span(f"worker {number}", "sample", 0, 1) for number in range(MOST_WORKERS + 3)]
    found = of(STEP, *workers)
    assert (len(found["rows"]), found["left_out"]) == (1 + MOST_WORKERS, 3)


def test_the_device_is_told_by_its_kernels():
    longest = (DeviceKernel(name="gemm", count=8, seconds=0.02),)
    work = DeviceWork(num_steps=4, wall_s=0.4, busy_s=0.1, num_kernels=4800, longest=longest)
    assert of(STEP, work=work)["device"] == {
        "reason": "",
        "busy": "25%",
        "kernels": "1,200",
        "longest": [("gemm", "2", "5.00 ms")],
    }
    assert of(STEP, work=DeviceWork(num_steps=0, reason="busy elsewhere"))["device"] == {"reason": "busy elsewhere"}
    assert of(STEP, work=DeviceWork(num_steps=0))["device"] is None
    assert of(STEP)["device"] is None
