"""Reports for other programs: what they hold is what was recorded, and no name in it can act."""

import json
from dataclasses import replace

import pytest
from tests.unit.report.specimens import drawn, hostile, hostile_tune, ordinary, tuned
from tests.unit.report.test_html import EVERY, INVISIBLE

from flatout.report.exports import EXPORTS
from flatout.report.exports.chrome import MAX_STEPS, chrome_trace
from flatout.report.exports.markdown import markdown
from flatout.report.exports.speedscope import speedscope
from flatout.report.html.page import page
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LineCost, Utilization


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
@pytest.mark.parametrize("ending", list(EXPORTS))
@pytest.mark.slow
def test_every_report_can_be_exported(make, ending):
    text = EXPORTS[ending](make())
    assert text.endswith("\n")
    if ending.endswith("json"):
        assert json.loads(text)
        assert text.isascii()


# --------------------------------------------------------------------------------------------------------------- chrome
def events(report, kind):
    return [event for event in json.loads(chrome_trace(report))["traceEvents"] if event["ph"] == kind]


def test_every_step_is_drawn_where_it_was_and_its_phases_fill_it():
    report = ordinary()
    drawn = events(report, "X")
    steps = [event for event in drawn if event["tid"] == 1]
    assert len(steps) == len(report.run.steps)
    for event, step in zip(steps, report.run.steps, strict=True):
        assert event["ts"] == pytest.approx((step.start_ns - report.run.header.launched_ns) / 1e3)
        inside = [
            one for one in drawn if one["tid"] == 2 and event["ts"] - 1 <= one["ts"] < event["ts"] + event["dur"] - 1
        ]
        assert sum(one["dur"] for one in inside) == pytest.approx(event["dur"])
    assert [event["name"] for event in drawn if event["tid"] == 3] == ["validation"]


FORMAT = {
    "X": {"name": str, "ph": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int},
    "C": {"name": str, "ph": str, "ts": (int, float), "pid": int, "tid": int, "args": dict},
    "M": {"name": str, "ph": str, "pid": int, "tid": int, "args": dict},
}
"""What the Trace Event Format asks of each kind of event: "Trace Event Format", Google, 2016, with the types that
Perfetto's JSON importer takes. tests/e2e/test_perfetto.py opens a trace in Perfetto itself."""

METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_the_trace_is_of_the_documented_format(make):
    shown = make()
    samples = (Utilization(at_s=1.0, main_cpu=0.9, gpu_busy=0.5), Utilization(at_s=2.0, main_cpu=float("nan")))
    text = chrome_trace(replace(shown, run=replace(shown.run, utilization=samples)))
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert {*document} <= {"traceEvents", "displayTimeUnit", "otherData", "systemTraceEvents", "stackFrames"}
    for event in document["traceEvents"]:
        wanted = FORMAT[event["ph"]]
        assert {*wanted} <= {*event} <= {*wanted, "args", "cat", "id"}
        for key, kind in wanted.items():
            assert isinstance(event[key], kind)
            assert not isinstance(event[key], bool)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert event["ph"] != "C" or all(isinstance(value, int | float) for value in event["args"].values())
        assert event["ph"] != "M" or (event["name"] in METADATA and isinstance(event["args"]["name"], str))


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_events_of_one_thread_follow_each_other_or_lie_within_each_other(make):
    """Perfetto throws away an event that begins inside another one and ends after it."""
    threads = {}
    for event in events(make(), "X"):
        threads.setdefault(event["tid"], []).append((event["ts"], -event["dur"]))
    for spans in threads.values():
        open_until = []
        for start, length in sorted(spans):
            end = start - length
            while open_until and open_until[-1] <= start + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


def test_the_machine_becomes_counters():
    report = ordinary()
    samples = (Utilization(at_s=1.0, main_cpu=0.9, gpu_busy=0.5), Utilization(at_s=2.0, main_cpu=0.8))
    counted = events(replace(report, run=replace(report.run, utilization=samples)), "C")
    assert [event["args"]["training"] for event in counted if event["name"] == "cores"] == [0.9, 0.8]
    assert [event["ts"] for event in counted if event["name"] == "GPU busy"] == [1e6]


def test_steps_as_they_ran_are_a_process_of_their_own():
    report = drawn()
    spans = [event for event in events(report, "X") if event["pid"] == 1]
    assert len(spans) == len(report.run.causes.timeline)
    assert all(event["dur"] > 0 for event in spans)
    names = {event["tid"]: event["args"]["name"] for event in events(report, "M") if event["name"] == "thread_name"}
    assert [names[event["tid"]] for event in spans][:3] == ["steps", "training thread", "training thread"]
    assert not {event["tid"] for event in spans} & {event["tid"] for event in events(report, "X") if event["pid"] == 0}


@pytest.mark.slow
def test_a_long_recording_is_cut_and_says_so():
    report = ordinary()
    steps = report.run.steps * (MAX_STEPS // 10)
    document = json.loads(chrome_trace(replace(report, run=replace(report.run, steps=steps))))
    assert document["otherData"]["steps_drawn"] == MAX_STEPS
    assert document["otherData"]["steps"] == len(steps)


# ----------------------------------------------------------------------------------------------------------- speedscope
LINES = (
    LineCost(
        process="worker",
        phase=Phase.INPUT,
        stage="sample",
        stack=(Frame("/code/data.py", 7, "load"), Frame("/code/train.py", 48, "__getitem__")),
        leaf="PIL",
        leaf_function="decode",
        seconds=0.5,
    ),
    LineCost(process="main", phase=Phase.HOST, part="tail", stack=(Frame("/code/train.py", 90, "main"),), seconds=0.25),
    LineCost(process="main", phase=Phase.BACKWARD, leaf="torch", leaf_function="backward", seconds=1.0),
)


def test_stacks_stand_with_the_outermost_frame_first_and_their_seconds():
    report = ordinary()
    document = json.loads(speedscope(replace(report, run=replace(report.run, causes=Causes(lines=LINES)))))
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    main, workers = document["profiles"]
    named = [[frames[place] for place in sample] for sample in main["samples"] + workers["samples"]]
    assert named == [
        ["host (tail)", "main:90"],
        ["backward", "torch.backward"],
        ["input (sample)", "__getitem__:48", "load:7", "PIL.decode"],
    ]
    assert main["weights"] == [0.25, 1.0]
    assert main["endValue"] == 1.25
    assert workers["weights"] == [0.5]
    assert {"name": "load:7", "file": "/code/data.py", "line": 7} in document["shared"]["frames"]


# ------------------------------------------------------------------------------------------------------------- markdown
def test_a_diagnosis_in_short():
    text = markdown(ordinary())
    assert text.startswith("### Training waits: 62% of each step is spent loading data; train.py:&#8203;48")
    assert "| input | 62.0 ms | 62% |" in text
    assert "| IN003 slow\\-sample\\-line | train.py:&#8203;48 | 62% | 2.6x |" in text
    assert "MS001" in text.splitlines()[-1]


def test_a_tune_in_short():
    text = markdown(tuned())
    assert "| loader\\-workers workers=2 | 1.44x | 1.40 to 1.48 | identical results |" in text


@pytest.mark.parametrize("make", [hostile, hostile_tune], ids=lambda make: make.__name__)
def test_no_name_becomes_markup(make):
    text = markdown(make())
    assert not set(text) & INVISIBLE
    assert "[bold]" not in text


def test_what_github_acts_on_after_the_markdown_is_broken_up():
    note = "see https://evil.example/x and www.evil.example, @team #12 $a$ :rocket: <b> | `x` *y* [z](u)"
    shown = ordinary()
    text = markdown(replace(shown, run=replace(shown.run, notes=(note,)))).splitlines()[-1]
    for acts in ("https://", "www.", "@t", "#1", "$a", ":rocket", " <", " |", " `", " *", " [", "]("):
        assert acts not in text


def test_a_tune_that_is_not_deterministic_says_so():
    shown = tuned()
    doubtful = [
        replace(trial, equality=replace(trial.equality, deterministic=False)) if trial.equality else trial
        for trial in shown.trials
    ]
    told = "does not give the same bits twice"
    assert told in markdown(replace(shown, trials=tuple(doubtful)))
    assert told in page(replace(shown, trials=tuple(doubtful)))
    assert told not in markdown(shown)


def test_numbers_that_are_none_become_numbers():
    shown = ordinary()
    odd = (Utilization(at_s=1.0, main_cpu=float("nan"), gpu_busy=float("inf")),)
    lines = (LineCost(process="main", phase=Phase.HOST, seconds=float("inf")),)
    broken = replace(shown, run=replace(shown.run, utilization=odd, causes=Causes(lines=lines)))
    for make in EXPORTS.values():
        assert make(broken)


def test_steps_that_are_means_are_drawn_as_long_as_all_of_them():
    shown = ordinary()
    drawn = events(replace(shown, run=replace(shown.run, steps_each=64)), "X")
    first = next(event for event in drawn if event["tid"] == 1)
    assert first["name"] == "steps 0 to 63"
    assert first["dur"] == pytest.approx(shown.run.steps[0].wall_ns * 64 / 1e3)
